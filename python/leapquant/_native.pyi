# SPDX-License-Identifier: Apache-2.0
"""The functions of python/module. Arrays are whatever _arrays.argument lets through."""

from collections.abc import Mapping
from typing import Any

_Array = Any

class _Pool: ...

__version__: str

# `gate` is 'kda' or 'gdn'; None stands for a tensor that another gate has.

# Heads, key heads, value_dim, key_dim, window, rank.
def default_geometry(gate: str, /) -> tuple[int, int, int, int, int, int]: ...
def flush(
    gate: str,
    codes: _Array,
    s_k: _Array,
    s_v: _Array,
    u: _Array,
    q: _Array,
    kbuf: _Array,
    ubuf: _Array,
    w: _Array,
    gbuf: _Array | None,
    pcum: _Array | None,
    p: _Array | None,
    q0: _Array,
    new_codes: _Array,
    new_s_k: _Array,
    new_s_v: _Array,
    new_u: _Array,
    new_q: _Array,
    check_finite: bool,
    /,
) -> None: ...
def flush_inplace(pool: _Pool, idx: _Array, q0: _Array, /) -> None: ...
def flush_now(pool: _Pool, idx: _Array, q0: _Array, /) -> None: ...
def step(
    gate: str,
    codes: _Array,
    s_k: _Array,
    s_v: _Array,
    u: _Array,
    q: _Array,
    kbuf: _Array,
    ubuf: _Array,
    w: _Array,
    gbuf: _Array | None,
    pcum: _Array | None,
    p: _Array | None,
    h: _Array,
    qx: _Array,
    kx: _Array,
    vx: _Array,
    a: _Array,
    b: _Array,
    A_log: _Array,
    dt_bias: _Array,
    o: _Array,
    k_row: _Array,
    u_row: _Array,
    g_row: _Array | None,
    w_new: _Array,
    pcum_new: _Array | None,
    p_new: _Array | None,
    lower_bound: float | None,
    /,
) -> None: ...
def step_inplace(
    pool: _Pool,
    idx: _Array,
    mixed: _Array,
    a: _Array,
    b: _Array,
    A_log: _Array,
    dt_bias: _Array,
    o: _Array,
    lower_bound: float | None,
    /,
) -> None: ...
def step_flush_inplace(
    pool: _Pool,
    idx: _Array,
    mixed: _Array,
    a: _Array,
    b: _Array,
    A_log: _Array,
    dt_bias: _Array,
    o: _Array,
    q0: _Array,
    lower_bound: float | None,
    /,
) -> None: ...
def draft_bytes(gate: str, num_heads: int, num_key_heads: int, rank: int, n: int, tokens: int, /) -> int: ...

# Rows, output among them, are [n, T, ...]; T is that of `mixed`.
def draft(
    pool: _Pool,
    idx: _Array,
    mixed: _Array,
    a: _Array,
    b: _Array,
    A_log: _Array,
    dt_bias: _Array,
    o: _Array,
    scratch: _Array,
    lower_bound: float | None,
    /,
) -> None: ...
def commit(pool: _Pool, idx: _Array, tokens: int, scratch: _Array, accepted: _Array, q0: _Array, /) -> None: ...
def reset_slots(pool: _Pool, idx: _Array, /) -> None: ...
def copy_slots(pool: _Pool, src: _Array, dst: _Array, /) -> None: ...

# `order` is 'vk' or 'kv'.
def import_state(pool: _Pool, idx: _Array, state: _Array, offset: _Array | None, q0: _Array, order: str, /) -> None: ...
def export_state(pool: _Pool, idx: _Array, state: _Array, order: str, /) -> None: ...
def pool_raw_elements(
    gate: str, num_slots: int, num_heads: int, num_key_heads: int, rank: int, layout: str, /
) -> int: ...
def pool_create(
    gate: str,
    raw: _Array,
    kbuf: _Array,
    ubuf: _Array,
    w: _Array,
    gbuf: _Array | None,
    pcum: _Array | None,
    p: _Array | None,
    hcnt: _Array,
    num_key_heads: int,
    rank: int,
    layout: str,
    /,
) -> _Pool: ...

# Bytes from the start of `raw`, extents, strides in elements.
def pool_views(pool: _Pool, /) -> Mapping[str, tuple[int, tuple[int, ...], tuple[int, ...]]]: ...
def pool_check_indices(pool: _Pool, idx: _Array, /) -> None: ...
def pool_errors(pool: _Pool, hcnt: _Array, /) -> tuple[int, int, int, int]: ...
