# SPDX-License-Identifier: Apache-2.0
"""Pools: kda.Pool and gdn.Pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _native
from ._arrays import NumpyArrays, TorchArrays, argument, is_torch, torch
from ._flush import call, create_pool

if torch is not None:
    from . import _torch_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._gates import Gate


class PoolOfGate:
    """What kda.Pool and gdn.Pool share: all but the tensors of their windows."""

    _gate: Gate

    raw: Any
    codes: Any
    s_k: Any
    s_v: Any
    uq: Any
    kbuf: Any
    ubuf: Any
    w: Any
    hcnt: Any

    def __init__(
        self,
        num_slots: int,
        device: Any,
        num_heads: int,
        num_key_heads: int,
        rank: int,
        layout: str,
        arrays: str | None,
    ) -> None:
        gate, library = self._gate, _library(arrays, device)
        elements = _native.pool_raw_elements(gate.name, num_slots, num_heads, num_key_heads, rank, layout)
        self.num_slots, self.num_heads, self.num_key_heads = num_slots, num_heads, num_key_heads
        self.rank, self.layout, self.device = rank, layout, library.device
        programs = (num_slots, num_heads)
        self.raw = library.full((elements,), "float32", 0)
        for name, tensor in gate.window.items():
            setattr(self, name, library.full((*programs, *tensor.shape), tensor.dtype, tensor.empty))
        self.hcnt = library.full(programs, "int32", 0)
        storage = {name: getattr(self, name) for name in gate.storage()}
        self._native = create_pool(gate, storage, rank, layout, num_key_heads)
        views = _native.pool_views(self._native)
        for name, dtype in {"codes": "int8", "s_k": "float32", "s_v": "float32", "uq": "float16"}.items():
            setattr(self, name, library.view(self.raw, dtype, *_plain(views[name])))
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
        nonfinite  a state or q0 with NaN or Inf: so is the new checkpoint; or such results of a step
        unflushed  a step or draft met a full window that was not flushed
        counter    a step, draft or export met a counter below 0 or above L; a commit met one that is not its draft's,
                   or an import an offset beyond the window

        Waits for the current stream of the pool's device.
        """
        positions = _native.pool_errors(self._native, argument("hcnt", self.hcnt))
        kinds = ("index", "nonfinite", "unflushed", "counter")
        return {kind: position for kind, position in zip(kinds, positions, strict=True) if position >= 0}

    def check_indices(self, idx: Any) -> None:
        """Raise ValueError when a slot stands twice in `idx`. Waits for the current stream of the pool's device."""
        call(_native.pool_check_indices, self._native, argument("idx", idx))

    def __repr__(self) -> str:
        key_heads = f"num_key_heads={self.num_key_heads}, " if self._gate.shares_keys else ""
        return (
            f"Pool({self.num_slots}, device='{self.device}', num_heads={self.num_heads}, {key_heads}"
            f"rank={self.rank}, layout='{self.layout}')"
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
