# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding, which kda and gdn share."""

from __future__ import annotations

from typing import Any

from . import _native, _step
from ._arrays import arrays_like, is_traced, torch
from ._pool import PoolOfGate

if torch is not None:
    from . import _torch_ops


def draft_scratch(pool: PoolOfGate, n: int, tokens: int) -> Any:
    """An array for the drafts of `tokens` tokens, 1 to 8, of n sequences: int8 [bytes], of the pool's array library and
    on its device. It is the caller's, may be larger than a call needs, and serves any number of drafts, one at a time.
    With KDA it takes 1,280 bytes a token and head, and 528 a head.
    """
    geometry = pool._gate.name, pool.num_heads, pool.num_key_heads, pool.rank
    return arrays_like(pool.raw).full((_native.draft_bytes(*geometry, n, tokens),), "int8", 0)


def draft(
    pool: PoolOfGate,
    idx: Any,
    mixed: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    o: Any,
    scratch: Any,
    *,
    lower_bound: float | None = None,
) -> None:
    """Step the sequences of the slots in `idx` by T drafted tokens each, without a trace in the pool: output rows to
    `o`, and what the steps would append to `scratch`, for `commit`.

    idx             int32    [n]: as in `flush_inplace`
    mixed           bfloat16 [n, T, 2 H_k K + H V]   T from 1 to 8; H_k is H, and GDN's key heads
    a               bfloat16 [n, T, H, K]            GDN: [n, T, H] or [n, T, H, 1]
    b               bfloat16 [n, T, H]
    A_log           float32  [H]                     contiguous
    dt_bias         float32  [H, K]                  contiguous; GDN: [H] or [H, 1]
    o               bfloat16 [n, T, H, V]            contiguous, written
    scratch         int8     [bytes]                 contiguous, written: see `draft_scratch`

    Every token attends to checkpoint, window and the drafted tokens before it. While the window has room for them, the
    outputs are those of T single steps, bit for bit; those beyond its end attend to all of its entries, which single
    steps would have flushed by then. Token t does not depend on later ones: sequences with fewer drafts fill up with
    any rows, and don't accept them. Rows may be strided, those of all tokens at one stride. Programs that a step would
    not touch give zeros, and show in `pool.errors()`. Streams, graphs and allocation as in `flush_inplace`;
    `lower_bound` as in `kda.step`.
    """
    arguments = (idx, mixed, a, b, A_log, dt_bias, o, scratch)
    if is_traced(idx):
        _torch_ops.draft(pool, *arguments, lower_bound)
        return
    _step.draft(pool._native, *arguments, lower_bound)


def commit(pool: PoolOfGate, idx: Any, tokens: int, scratch: Any, accepted: Any, q0: Any) -> None:
    """Append the first accepted[i] of the tokens drafted for position i, and flush each window that they fill.

    idx, scratch  those of the draft
    tokens        T of the draft
    accepted      int32 [n], contiguous: 0 to T. On the CPU another value is refused; elsewhere nothing is appended for
                  it, and it shows in `pool.errors()`.
    q0            float32 [V, R]: as in `flush_inplace`

    With 0 accepted a slot keeps every byte. With all T, and room for them, its bytes are those of T single steps, each
    with a flush of what it has made due. Between draft and commit the slots must stay as they are: a program whose
    count is not what the draft met keeps every byte, and shows in `pool.errors()`. So a draft is committed once.
    Refusals, streams, graphs and allocation as in `draft`.
    """
    arguments = (idx, tokens, scratch, accepted, q0)
    if is_traced(idx):
        _torch_ops.commit(pool, *arguments)
        return
    _step.commit(pool._native, *arguments)
