# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention: step by tokens, and flush windows into new checkpoints.

Shapes: B sequences, H heads, V = K = 128, L = 16 entries a window, R the rank of a checkpoint. docs/format.md says what
the tensors mean. Arrays are PyTorch's, on the CPU or a CUDA device, or NumPy's; inputs may also be others that speak
DLPack, on the CPU. bfloat16 in NumPy is `ml_dtypes.bfloat16` or uint16 bit patterns.

A backend may lack an operation, and then refuses it by name: so far `cuda` has `run` and `flush_inplace` alone.

Errors: ValueError for a wrong shape, dtype, stride, device or size, and for what a backend lacks; TypeError for what is
no array, or has a dtype that the format doesn't know; MemoryError; RuntimeError for CUDA and for defects. Nothing was
written when one is raised. The text names the tensor, what was expected and what came.
"""

from __future__ import annotations

from typing import Any

from . import _native, _step
from ._arrays import argument, is_torch, torch
from ._flush import Checkpoint, call, flush
from ._pool import Pool
from ._step import Step

if torch is not None:
    from . import _torch_ops

    _Tensor, _is_compiling = torch.Tensor, torch.compiler.is_compiling
else:
    _Tensor, _is_compiling = None, bool

__all__ = [
    "Checkpoint",
    "Pool",
    "Step",
    "copy_slots",
    "flush_inplace",
    "flush_now",
    "reset_slots",
    "run",
    "step",
    "step_flush_inplace",
    "step_inplace",
]


def run(
    codes: Any,
    s_k: Any,
    s_v: Any,
    u: Any,
    q: Any,
    kbuf: Any,
    ubuf: Any,
    gbuf: Any,
    w: Any,
    pcum: Any,
    q0: Any,
    *,
    check_finite: bool = False,
) -> Checkpoint:
    """Flush every program of a batch: checkpoint and window in, fresh checkpoint out, inputs untouched.

    codes   int8     [B, H, V, K]   residual codes
    s_k     float32  [B, H, K]      key scales
    s_v     float32  [B, H, V]      value scales
    u       float16  [B, H, R, K]   key factors
    q       float16  [B, H, R, V]   value factors
    kbuf    bfloat16 [B, H, L, K]   keys of the window's entries
    ubuf    bfloat16 [B, H, L, V]   update vectors
    gbuf    float16  [B, H, L, K]   decay factors, in [0, 1]
    w       float32  [B, H, L]      weights, in [0, 1]
    pcum    float32  [B, H, K]      summed log-gates, <= 0
    q0      float32  [V, R]         the fixed start basis

    All on one device. Strides over B and H (u and q: over R too) cost nothing; what is strided further in is copied
    first. On CUDA tensors must lie at multiples of 16 bytes, and the call only enqueues on PyTorch's current stream of
    that device. `check_finite` refuses NaN and Inf, which there waits for the stream.
    """
    if _traced(codes):
        return Checkpoint(*_torch_ops.run(codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0, check_finite))
    return flush(codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0, check_finite=check_finite)


def step(
    codes: Any,
    s_k: Any,
    s_v: Any,
    u: Any,
    q: Any,
    kbuf: Any,
    ubuf: Any,
    gbuf: Any,
    w: Any,
    pcum: Any,
    h: Any,
    qx: Any,
    kx: Any,
    vx: Any,
    a: Any,
    b: Any,
    A_log: Any,
    dt_bias: Any,
    *,
    lower_bound: float | None = None,
) -> Step:
    """Step every program of a batch by one token: its output, and what goes into the window, inputs untouched.

    Checkpoint and window as in `run`; of the window, the first h entries count.

    h         int32    [B, H]      occupied entries, 0 to L - 1
    qx, kx    bfloat16 [B, H, K]   query and key, not normalised
    vx        bfloat16 [B, H, V]   value
    a         bfloat16 [B, H, K]   gate pre-activations
    b         bfloat16 [B, H]      beta pre-activations
    A_log     float32  [H]
    dt_bias   float32  [H, K]

    The log-gate is -exp(A_log) softplus(a + dt_bias); with `lower_bound`, below 0, lower_bound sigmoid(exp(A_log) (a +
    dt_bias)). All on one device; strides as in `run`.
    """
    inputs = (codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, h, qx, kx, vx, a, b, A_log, dt_bias)
    if _traced(codes):
        return Step(*_torch_ops.step(*inputs, lower_bound))
    return _step.step(*inputs, lower_bound=lower_bound)


def flush_inplace(pool: Pool, idx: Any, q0: Any) -> None:
    """Flush every program of the slots in `idx` whose counter equals L: new checkpoint over the old, window reset.

    idx  int32 [n], contiguous, on the pool's device. Entries <= 0 mean "no sequence". An entry beyond the pool touches
         nothing and shows in `pool.errors()`. n may be 0 or exceed the slots. A slot twice is the caller's error.
    q0   float32 [V, R], contiguous, on the pool's device

    The window is reset by w = 0, gbuf = 1, pcum = 0; counters stay, and a counter of L then means "flushed, empty". On
    CUDA the call enqueues on PyTorch's current stream of the pool's device, allocates nothing, never waits, and can be
    captured in a graph; pool, idx and q0 must then outlive the graph.
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
    if _traced(idx):
        _torch_ops.flush_inplace(pool, idx, q0)
        return
    call(_native.flush_inplace, pool._native, argument("idx", idx), argument("q0", q0))


def step_inplace(
    pool: Pool,
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
    mixed     bfloat16 [n, 2 H K + H V]   a row: queries of all heads, their keys, their values
    a         bfloat16 [n, H, K]          gate pre-activations
    b         bfloat16 [n, H]             beta pre-activations
    A_log     float32  [H]                contiguous
    dt_bias   float32  [H, K]             contiguous
    o         bfloat16 [n, H, V]          contiguous, written: PyTorch's or NumPy's, overlapping nothing else

    All on the pool's device; rows may be strided, what is within a row not. An index that means no sequence, or is
    beyond the pool, gives a row of zeros. A counter of L means that a flush has emptied the window, and becomes 1. A
    window that is full and not flushed, or has a counter below 0 or above L, keeps every byte, gives zeros, and shows
    in `pool.errors()`. Streams, graphs and allocation as in `flush_inplace`. `lower_bound` as in `step`.
    """
    arguments = (idx, mixed, a, b, A_log, dt_bias, o)
    if _traced(idx):
        _torch_ops.step_inplace(pool, *arguments, lower_bound)
        return
    _step.step_inplace(pool._native, *arguments, lower_bound)


def step_flush_inplace(
    pool: Pool,
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
    if _traced(idx):
        _torch_ops.step_flush_inplace(pool, *arguments, lower_bound)
        return
    _step.step_flush_inplace(pool._native, *arguments, lower_bound)


def flush_now(pool: Pool, idx: Any, q0: Any) -> None:
    """Flush windows of any fill: every program of the slots in `idx` whose counter is from 1 to L gets a new
    checkpoint, an empty window and counter 0. Entries from the counter on must be empty: weight 0, gate 1. Otherwise as
    `flush_inplace`.
    """
    if _traced(idx):
        _torch_ops.flush_now(pool, idx, q0)
        return
    call(_native.flush_now, pool._native, argument("idx", idx), argument("q0", q0))


def reset_slots(pool: Pool, idx: Any) -> None:
    """Make the slots in `idx` what they are in a new pool: a zero state, an empty window, counters 0. Indices as in
    `flush_inplace`; a slot may stand there twice.
    """
    if _traced(idx):
        _torch_ops.reset_slots(pool, idx)
        return
    call(_native.reset_slots, pool._native, argument("idx", idx))


def copy_slots(pool: Pool, src: Any, dst: Any) -> None:
    """Copy slot src[i] to slot dst[i], for all i: checkpoint, window and counters. For forks and prefix caches.

    src, dst  int32 [n], contiguous, on the pool's device. Pairs with an index <= 0 are skipped, and those with one
              beyond the pool, which shows in `pool.errors()`. A slot of `dst` stands there once, and nowhere in `src`:
              on the CPU other lists are refused, elsewhere they are the caller's error.
    """
    if _traced(src):
        _torch_ops.copy_slots(pool, src, dst)
        return
    call(_native.copy_slots, pool._native, argument("src", src), argument("dst", dst))


def _traced(array) -> bool:
    """Whether PyTorch's tracers look on: they know the operations of torch.library, and nothing of DLPack."""
    if torch is None:
        return False
    return _is_compiling() or (is_torch(array) and type(array) is not torch.Tensor)
