# SPDX-License-Identifier: Apache-2.0
"""The calls that kda and gdn share: past PyTorch's tracers, or by the operations that these know."""

from __future__ import annotations

from typing import Any, Literal

from . import _native, _states, _step
from ._arrays import argument, arrays_like, is_torch, is_traced, torch
from ._flush import Checkpoint, call, flush
from ._pool import PoolOfGate

if torch is not None:
    from . import _torch_ops

    _Tensor, _is_compiling = torch.Tensor, torch.compiler.is_compiling
else:
    _Tensor, _is_compiling = None, bool


def run(gate, inputs, check_finite):
    """See kda.run."""
    if is_traced(inputs[0]):
        return Checkpoint(*_torch_ops.run[gate.name](*inputs, check_finite))
    return flush(gate, inputs, check_finite)


def step(gate, inputs, lower_bound):
    """See kda.step and gdn.step."""
    if is_traced(inputs[0]):
        return _torch_ops.step[gate.name](*inputs, lower_bound)
    return _step.step(gate, inputs, lower_bound)


def step_inplace(
    pool: PoolOfGate,
    idx: Any,
    mixed: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    o: Any,
    *,
    lower_bound: float | None = None,
) -> None:
    """Step the sequences of the slots in `idx` by one token: output rows to `o`, an entry into each window, counted.

    idx       int32    [n], contiguous: as in `flush_inplace`; position i takes row i of the others
    mixed     bfloat16 [n, 2 H_k K + H V]   a row: queries of all key heads, their keys, the heads' values; H_k is H,
                                            and GDN's key heads
    a         bfloat16 [n, H, K]            gate pre-activations; GDN: [n, H] or [n, H, 1]
    b         bfloat16 [n, H]               beta pre-activations
    A_log     float32  [H]                  contiguous
    dt_bias   float32  [H, K]               contiguous; GDN: [H] or [H, 1]
    o         bfloat16 [n, H, V]            contiguous, written: PyTorch's or NumPy's, overlapping nothing else

    All on the pool's device; rows may be strided, what is within a row not. An index that means no sequence, or is
    beyond the pool, gives a row of zeros. A counter of L means that a flush has emptied the window, and becomes 1. A
    window that is full and not flushed, or has a counter below 0 or above L, keeps every byte, gives zeros, and shows
    in `pool.errors()`. Streams, graphs and allocation as in `flush_inplace`. `lower_bound` as in `step`.
    """
    arguments = (idx, mixed, a, b, A_log, dt_bias, o)
    if is_traced(idx):
        _torch_ops.step_inplace(pool, *arguments, lower_bound)
        return
    _step.step_inplace(pool._native, *arguments, lower_bound)


def step_flush_inplace(
    pool: PoolOfGate,
    idx: Any,
    mixed: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    o: Any,
    q0: Any,
    *,
    lower_bound: float | None = None,
) -> None:
    """`step_inplace` and then `flush_inplace`, with the same bits, in one call a layer and token."""
    arguments = (idx, mixed, a, b, A_log, dt_bias, o, q0)
    if is_traced(idx):
        _torch_ops.step_flush_inplace(pool, *arguments, lower_bound)
        return
    _step.step_flush_inplace(pool._native, *arguments, lower_bound)


def flush_inplace(pool: PoolOfGate, idx: Any, q0: Any) -> None:
    """Flush every program of the slots in `idx` whose counter equals L: new checkpoint over the old, window reset.

    idx  int32 [n], contiguous, on the pool's device. Entries <= 0 mean "no sequence". An entry beyond the pool touches
         nothing and shows in `pool.errors()`. n may be 0 or exceed the slots. A slot twice is the caller's error.
    q0   float32 [V, R], contiguous, on the pool's device

    The window is reset by w = 0 and, with KDA, gbuf = 1, pcum = 0, with GDN, p = 1; counters stay, and a counter of L
    then means "flushed, empty". On CUDA the call enqueues on PyTorch's current stream of the pool's device, allocates
    nothing, never waits, and can be captured in a graph; pool, idx and q0 must then outlive the graph.
    """
    if type(idx) is _Tensor is type(q0) and not (_is_compiling() or idx.is_neg() or q0.is_neg()):
        # What engines call, and often: the general way below takes half a microsecond more.
        try:
            _native.flush_inplace(pool._native, idx, q0)
        except RuntimeError:
            # Where PyTorch would not export a tensor, its text does not say which.
            argument("idx", idx), argument("q0", q0)
            raise
        return
    if is_traced(idx):
        _torch_ops.flush_inplace(pool, idx, q0)
        return
    call(_native.flush_inplace, pool._native, argument("idx", idx), argument("q0", q0))


def flush_now(pool: PoolOfGate, idx: Any, q0: Any) -> None:
    """Flush windows of any fill: every program of the slots in `idx` whose counter is from 1 to L gets a new
    checkpoint, an empty window and counter 0. Entries from the counter on must be empty: weight 0 and, with KDA, gate
    1. Otherwise as `flush_inplace`.
    """
    if is_traced(idx):
        _torch_ops.flush_now(pool, idx, q0)
        return
    call(_native.flush_now, pool._native, argument("idx", idx), argument("q0", q0))


def reset_slots(pool: PoolOfGate, idx: Any) -> None:
    """Make the slots in `idx` what they are in a new pool: a zero state, an empty window, counters 0. Indices as in
    `flush_inplace`; a slot may stand there twice.
    """
    if is_traced(idx):
        _torch_ops.reset_slots(pool, idx)
        return
    call(_native.reset_slots, pool._native, argument("idx", idx))


def copy_slots(pool: PoolOfGate, src: Any, dst: Any) -> None:
    """Copy slot src[i] to slot dst[i], for all i: checkpoint, window and counters. For forks and prefix caches.

    src, dst  int32 [n], contiguous, on the pool's device. Pairs with an index <= 0 are skipped, and those with one
              beyond the pool, which shows in `pool.errors()`. A slot of `dst` stands there once, and nowhere in `src`:
              on the CPU other lists are refused, elsewhere they are the caller's error.
    """
    if is_traced(src):
        _torch_ops.copy_slots(pool, src, dst)
        return
    call(_native.copy_slots, pool._native, argument("src", src), argument("dst", dst))


def import_state(
    pool: PoolOfGate,
    idx: Any,
    state: Any,
    q0: Any,
    *,
    order: Literal["vk", "kv"] = "vk",
    offset: Any = None,
) -> None:
    """Import dense states, as a prefill leaves them: every program of the slots in `idx` gets the checkpoint of its
    state and an empty window. Nothing of a slot's last tenant stays.

    idx     int32 [n]: as in `flush_inplace`; position i takes state i
    state   float32 or bfloat16, [n, H, V, K], or with order='kv' [n, H, K, V]; may be strided over n and H
    q0      float32 [V, R]: as in `flush_inplace`
    offset  int32 [n, H], may be strided, or None for zeros: the counters to begin with, 0 to L - 1. Offset c counts c
            entries that are empty, so that the first flush falls due after L - c steps: offsets spread over the heads
            spread the flushes over the tokens.

    On the CPU another offset is refused; elsewhere its program keeps every byte, and it shows in `pool.errors()`, as
    does everywhere a state with NaN or Inf, which is imported all the same. Streams, graphs and allocation as in
    `flush_inplace`.
    """
    if is_traced(idx):
        _torch_ops.import_state(pool, idx, state, offset, q0, order)
        return
    _states.import_state(pool._native, idx, state, offset, q0, order)


def export_state(pool: PoolOfGate, idx: Any, state: Any = None, *, order: Literal["vk", "kv"] = "vk") -> Any:
    """Export the states of the slots in `idx` at any fill: what checkpoint and window stand for. The pool keeps every
    byte. Entries from the counter on must be empty: weight 0 and, with KDA, gate 1.

    idx    int32 [n]: as in `flush_inplace`; position i gives state i
    state  float32 [n, H, V, K], or with order='kv' [n, H, K, V], contiguous, written: PyTorch's or NumPy's, overlapping
           nothing else. None makes one, of the pool's array library.

    Returns `state`. It is zero where there is no sequence, and for an index beyond the pool and a counter below 0 or
    above L, which show in `pool.errors()`. Streams and graphs as in `flush_inplace`.
    """
    if state is None:
        count = (idx if is_torch(idx) else argument("idx", idx)).shape[:1]
        value_dim, key_dim = pool.codes.shape[2:]
        dimensions = (key_dim, value_dim) if order == "kv" else (value_dim, key_dim)
        state = arrays_like(pool.raw).empty((*count, pool.num_heads, *dimensions), "float32")
    if is_traced(idx):
        _torch_ops.export_state(pool, idx, state, order)
    else:
        _states.export_state(pool._native, idx, state, order)
    return state
