# SPDX-License-Identifier: Apache-2.0
"""Pools: kda.Pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._arrays import NumpyArrays, TorchArrays, argument, is_torch, torch
from ._flush import call, create_pool

if torch is not None:
    from . import _torch_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

_HEADS, _VALUE_DIM, _KEY_DIM, _WINDOW, _RANK = _native.default_geometry


class Pool:
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

    def __init__(
        self,
        num_slots: int,
        device: Any = None,
        *,
        num_heads: int = _HEADS,
        rank: int = _RANK,
        layout: Literal["padded", "compact"] = "padded",
        arrays: Literal["torch", "numpy"] | None = None,
    ) -> None:
        library = _library(arrays, device)
        programs = (num_slots, num_heads)
        elements = _native.pool_raw_elements(num_slots, num_heads, rank, layout)
        self.num_slots, self.num_heads, self.rank, self.layout = num_slots, num_heads, rank, layout
        self.device = library.device
        self.raw = library.full((elements,), "float32", 0)
        self.kbuf = library.full((*programs, _WINDOW, _KEY_DIM), "bfloat16", 0)
        self.ubuf = library.full((*programs, _WINDOW, _VALUE_DIM), "bfloat16", 0)
        self.w = library.full((*programs, _WINDOW), "float32", 0)
        self.gbuf = library.full((*programs, _WINDOW, _KEY_DIM), "float16", 1)
        self.pcum = library.full((*programs, _KEY_DIM), "float32", 0)
        self.hcnt = library.full(programs, "int32", 0)
        self._native = create_pool(
            self.raw, self.kbuf, self.ubuf, self.w, self.gbuf, self.pcum, self.hcnt, rank, layout
        )
        views = _native.pool_views(self._native)
        dtypes = {"codes": "int8", "s_k": "float32", "s_v": "float32", "uq": "float16"}
        self.codes, self.s_k, self.s_v, self.uq = (
            library.view(self.raw, dtype, *_plain(views[name])) for name, dtype in dtypes.items()
        )
        if is_torch(self.raw):
            _torch_ops.remember(self)

    def __setattr__(self, name: str, value: Any) -> None:
        # The library keeps addresses: what another tensor of this name held, it would never see.
        if name in self.__dict__ and self.__dict__[name] is not value:
            raise AttributeError(f"pool.{name} stands for the pool's own: assign to its elements, pool.{name}[...]")
        super().__setattr__(name, value)

    def errors(self) -> dict[str, int]:
        """Read and clear what in-place calls met in their data: the first batch position of each kind there was.

        index      an index beyond the pool: nothing was touched for it
        nonfinite  a state or q0 with NaN or Inf: so is the new checkpoint
        unflushed  a step met a full window that was not flushed
        counter    a step met a counter below 0 or above L

        Waits for the current stream of the pool's device.
        """
        positions = _native.pool_errors(self._native, argument("hcnt", self.hcnt))
        kinds = ("index", "nonfinite", "unflushed", "counter")
        return {kind: position for kind, position in zip(kinds, positions, strict=True) if position >= 0}

    def check_indices(self, idx: Any) -> None:
        """Raise ValueError when a slot stands twice in `idx`. Waits for the current stream of the pool's device."""
        call(_native.pool_check_indices, self._native, argument("idx", idx))

    def __repr__(self) -> str:
        return (
            f"Pool({self.num_slots}, device='{self.device}', num_heads={self.num_heads}, rank={self.rank}, "
            f"layout='{self.layout}')"
        )


def _plain(view) -> tuple[int, Sequence[int], Sequence[int]]:
    offset, shape, strides = view
    return int(offset), tuple(shape), tuple(strides)


def _library(arrays, device):
    if arrays not in (None, "torch", "numpy"):
        raise ValueError(f"arrays: expected 'torch', 'numpy' or None, got {arrays!r}")
    if arrays == "torch" and torch is None:
        raise ValueError("arrays: expected 'numpy' or None where PyTorch is not installed, got 'torch'")
    if arrays != "numpy" and torch is not None:
        return TorchArrays(device)
    return NumpyArrays("cpu" if device is None else device)
