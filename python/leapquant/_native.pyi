# SPDX-License-Identifier: Apache-2.0
"""The functions of python/module/functions.cc. Arrays are whatever _arrays.argument lets through."""

from collections.abc import Mapping
from typing import Any

_Array = Any

class _Pool: ...

__version__: str
default_geometry: tuple[int, int, int, int, int]  # heads, value_dim, key_dim, window, rank

def flush(
    codes: _Array,
    s_k: _Array,
    s_v: _Array,
    u: _Array,
    q: _Array,
    kbuf: _Array,
    ubuf: _Array,
    gbuf: _Array,
    w: _Array,
    pcum: _Array,
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
    codes: _Array,
    s_k: _Array,
    s_v: _Array,
    u: _Array,
    q: _Array,
    kbuf: _Array,
    ubuf: _Array,
    gbuf: _Array,
    w: _Array,
    pcum: _Array,
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
    g_row: _Array,
    w_new: _Array,
    pcum_new: _Array,
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
def reset_slots(pool: _Pool, idx: _Array, /) -> None: ...
def copy_slots(pool: _Pool, src: _Array, dst: _Array, /) -> None: ...
def pool_raw_elements(num_slots: int, num_heads: int, rank: int, layout: str, /) -> int: ...
def pool_create(
    raw: _Array,
    kbuf: _Array,
    ubuf: _Array,
    w: _Array,
    gbuf: _Array,
    pcum: _Array,
    hcnt: _Array,
    rank: int,
    layout: str,
    /,
) -> _Pool: ...

# Bytes from the start of `raw`, extents, strides in elements.
def pool_views(pool: _Pool, /) -> Mapping[str, tuple[int, tuple[int, ...], tuple[int, ...]]]: ...
def pool_check_indices(pool: _Pool, idx: _Array, /) -> None: ...
def pool_errors(pool: _Pool, hcnt: _Array, /) -> tuple[int, int, int, int]: ...
