# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention: step by tokens, flush windows into new checkpoints, and keep states in slots of a pool.

Shapes: B sequences, H heads, V = K = 128, L = 16 entries a window, R the rank of a checkpoint. docs/format.md says what
the tensors mean. Arrays are PyTorch's, on the CPU or a CUDA device, or NumPy's; inputs may also be others that speak
DLPack, on the CPU. bfloat16 in NumPy is `ml_dtypes.bfloat16` or uint16 bit patterns.

Errors: ValueError for a wrong shape, dtype, stride, device or size, and for what a backend lacks; TypeError for what is
no array, or has a dtype that the format doesn't know; MemoryError; RuntimeError for CUDA and for defects. Nothing was
written when one is raised. The text names the tensor, what was expected and what came.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from . import _calls
from ._calls import (
    copy_slots,
    export_state,
    flush_inplace,
    flush_now,
    import_state,
    reset_slots,
    step_flush_inplace,
    step_inplace,
)
from ._drafts import commit, draft, draft_scratch
from ._flush import Checkpoint
from ._gates import KDA
from ._pool import PoolOfGate

__all__ = [
    "Checkpoint",
    "Pool",
    "Step",
    "commit",
    "copy_slots",
    "draft",
    "draft_scratch",
    "export_state",
    "flush_inplace",
    "flush_now",
    "import_state",
    "reset_slots",
    "run",
    "step",
    "step_flush_inplace",
    "step_inplace",
]


class Pool(PoolOfGate):
    """Slots for sequences, one slot a sequence's H programs; slot 0 is reserved.

    num_slots  slots, slot 0 included
    device     where: 'cpu', 'cuda', 'cuda:1' or a torch.device; None takes PyTorch's default
    num_heads  H
    rank       R: 1, 2, 4 or 8
    layout     'padded', the published one: 65,536 bytes a head, as a dense fp32 state has; or 'compact', which takes
               17,408 + 512 R bytes a head and saves the memory
    arrays     'torch' or 'numpy'; None takes PyTorch where it is installed

    A new slot is a valid zero state. All attributes are views of memory that lives as long as any of them:

    raw     float32, flat: the checkpoints' bytes
    codes   int8     [N, H, V, K]      s_k   float32 [N, H, K]      s_v   float32 [N, H, V]
    uq      float16  [N, H, R, K + V]: row r is u[r] followed by q[r]
    kbuf    bfloat16 [N, H, L, K]      ubuf  bfloat16 [N, H, L, V]  w     float32 [N, H, L]
    gbuf    float16  [N, H, L, K]      pcum  float32  [N, H, K]     hcnt  int32 [N, H]: entries in each window

    Calls on one pool are for the caller to order; pools are independent of one another.
    """

    _gate = KDA
    gbuf: Any
    pcum: Any

    def __init__(
        self,
        num_slots: int,
        device: Any = None,
        *,
        num_heads: int = KDA.num_heads,
        rank: int = KDA.rank,
        layout: Literal["padded", "compact"] = "padded",
        arrays: Literal["torch", "numpy"] | None = None,
    ) -> None:
        super().__init__(num_slots, device, num_heads, num_heads, rank, layout, arrays)


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
    return _calls.run(KDA, (codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0), check_finite)


class Step(NamedTuple):
    """What `step` returns."""

    o: Any
    """bfloat16 [B, H, V]: output."""
    k_row: Any
    """bfloat16 [B, H, K]: entry h of kbuf."""
    u_row: Any
    """bfloat16 [B, H, V]: entry h of ubuf."""
    g_row: Any
    """float16 [B, H, K]: entry h of gbuf."""
    w_new: Any
    """float32 [B, H, L]: w, and 1 at entry h."""
    pcum_new: Any
    """float32 [B, H, K]: takes the place of pcum."""


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
    return Step(*_calls.step(KDA, inputs, lower_bound))
