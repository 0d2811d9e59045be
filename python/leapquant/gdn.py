# SPDX-License-Identifier: Apache-2.0
"""Gated DeltaNet: step by tokens, flush windows into new checkpoints, and keep states in slots of a pool.

One decay a head where `leapquant.kda` has one a key channel; otherwise as there: arrays, shapes, errors, streams and
what a backend may lack. H counts the value heads. Query and key heads, of which there may be fewer, matter to a step
alone: in checkpoints and windows every value head has keys of its own.
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
from ._gates import GDN
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
    """Slots for sequences, as those of `leapquant.kda.Pool`.

    num_slots, device, rank, layout, arrays  as there
    num_heads                                H
    num_key_heads                            query and key heads; divides H

    Of the attributes, all views of memory that lives as long as any of them, the window's are

    kbuf  bfloat16 [N, H, L, K]      ubuf  bfloat16 [N, H, L, V]  w     float32 [N, H, L]
    p     float32  [N, H, 1]         hcnt  int32    [N, H]: entries in each window

    and raw, codes, s_k, s_v, uq what they are there. A new slot is a valid zero state, with p = 1.
    """

    _gate = GDN
    p: Any

    def __init__(
        self,
        num_slots: int,
        device: Any = None,
        *,
        num_heads: int = GDN.num_heads,
        num_key_heads: int = GDN.num_key_heads,
        rank: int = GDN.rank,
        layout: Literal["padded", "compact"] = "padded",
        arrays: Literal["torch", "numpy"] | None = None,
    ) -> None:
        super().__init__(num_slots, device, num_heads, num_key_heads, rank, layout, arrays)


def run(
    codes: Any,
    s_k: Any,
    s_v: Any,
    u: Any,
    q: Any,
    kbuf: Any,
    ubuf: Any,
    w: Any,
    p: Any,
    q0: Any,
    *,
    check_finite: bool = False,
) -> Checkpoint:
    """Flush every program of a batch: checkpoint and window in, fresh checkpoint out, inputs untouched.

    As `leapquant.kda.run`, but for what decays:

    w   float32  [B, H, L]                weights, in [0, 1], decayed since their entries were appended
    p   float32  [B, H] or [B, H, 1]      product of the gates since the checkpoint, in [0, 1]
    """
    return _calls.run(GDN, (codes, s_k, s_v, u, q, kbuf, ubuf, w, p, q0), check_finite)


class Step(NamedTuple):
    """What `step` returns."""

    o: Any
    """bfloat16 [B, H, V]: output."""
    k_row: Any
    """bfloat16 [B, H, K]: entry h of kbuf."""
    u_row: Any
    """bfloat16 [B, H, V]: entry h of ubuf."""
    w_new: Any
    """float32 [B, H, L]: w times the token's decay below entry h, and 1 at entry h."""
    p_new: Any
    """float32, of the shape of p: takes its place."""


def step(
    codes: Any,
    s_k: Any,
    s_v: Any,
    u: Any,
    q: Any,
    kbuf: Any,
    ubuf: Any,
    w: Any,
    p: Any,
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

    As `leapquant.kda.step`, but for the token's decay, of which there is one, and for the H_k key heads, as many as
    `qx` and `kx` have: they divide H, and value head i takes those of key head i / (H / H_k), rounded down.

    qx, kx    bfloat16 [B, H_k, K]              query and key, not normalised
    a         bfloat16 [B, H] or [B, H, 1]      gate pre-activations
    dt_bias   float32  [H] or [H, 1]
    """
    inputs = (codes, s_k, s_v, u, q, kbuf, ubuf, w, p, h, qx, kx, vx, a, b, A_log, dt_bias)
    return Step(*_calls.step(GDN, inputs, lower_bound))
