# SPDX-License-Identifier: Apache-2.0
"""Kimi Delta Attention: flush windows into new checkpoints.

Shapes: B sequences, H heads, V = K = 128, L = 16 entries a window, R the rank of a checkpoint. docs/format.md says what
the tensors mean. Arrays are PyTorch's, on the CPU or a CUDA device, or NumPy's; `run` also takes others that speak
DLPack, on the CPU. bfloat16 in NumPy is `ml_dtypes.bfloat16` or uint16 bit patterns.

Errors: ValueError for a wrong shape, dtype, stride, device or size, and for what a backend lacks; TypeError for what is
no array, or has a dtype that the format doesn't know; MemoryError; RuntimeError for CUDA and for defects. Nothing was
written when one is raised. The text names the tensor, what was expected and what came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from . import _native
from ._arrays import NumpyArrays, TorchArrays, argument, is_torch, torch
from ._flush import Checkpoint, call, create_pool, flush

if torch is not None:
    from . import _torch_ops

    _Tensor, _is_compiling = torch.Tensor, torch.compiler.is_compiling
else:
    _Tensor, _is_compiling = None, bool

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Checkpoint", "Pool", "flush_inplace", "run"]

_HEADS, _VALUE_DIM, _KEY_DIM, _WINDOW, _RANK = _native.default_geometry


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


def _traced(array) -> bool:
    """Whether PyTorch's tracers look on: they know the operations of torch.library, and nothing of DLPack."""
    if torch is None:
        return False
    return _is_compiling() or (is_torch(array) and type(array) is not torch.Tensor)
