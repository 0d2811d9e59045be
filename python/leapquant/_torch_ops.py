# SPDX-License-Identifier: Apache-2.0
"""The operations as torch.library knows them, so that torch.compile and torch.export trace through.

Eager calls don't come by here: dispatching would cost more than an in-place flush.
"""

import weakref
from typing import Any

import torch
from torch import Tensor

from . import _flush, _native

# A second copy of the package, such as a kernel of the hub, has a name of its own.
_NAMESPACE = __package__.replace(".", "_")

# Living pools, by the address of their counters.
_pools: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def remember(pool):
    """Let the operation find `pool`, and so its error word."""
    _pools[pool.hcnt.data_ptr()] = pool


@torch.library.custom_op(f"{_NAMESPACE}::kda_run", mutates_args=())
def run(
    codes: Tensor,
    s_k: Tensor,
    s_v: Tensor,
    u: Tensor,
    q: Tensor,
    kbuf: Tensor,
    ubuf: Tensor,
    gbuf: Tensor,
    w: Tensor,
    pcum: Tensor,
    q0: Tensor,
    check_finite: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return tuple(_flush.flush(codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0, check_finite=check_finite))


@run.register_fake
def _(codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0, check_finite):
    return tuple(tensor.new_empty(tensor.shape) for tensor in (codes, s_k, s_v, u, q))


@torch.library.custom_op(f"{_NAMESPACE}::kda_flush_inplace", mutates_args=("raw", "w", "gbuf", "pcum"))
def _flush_inplace(
    raw: Tensor,
    kbuf: Tensor,
    ubuf: Tensor,
    w: Tensor,
    gbuf: Tensor,
    pcum: Tensor,
    hcnt: Tensor,
    idx: Tensor,
    q0: Tensor,
    rank: int,
    layout: str,
) -> None:
    pool = _native_pool(raw, kbuf, ubuf, w, gbuf, pcum, hcnt, rank, layout)
    _flush.call(_native.flush_inplace, pool, idx, q0)


@_flush_inplace.register_fake
def _(raw, kbuf, ubuf, w, gbuf, pcum, hcnt, idx, q0, rank, layout):
    return None


def flush_inplace(pool, idx, q0):
    _flush_inplace(
        pool.raw, pool.kbuf, pool.ubuf, pool.w, pool.gbuf, pool.pcum, pool.hcnt, idx, q0, pool.rank, pool.layout
    )


def _native_pool(*arguments):
    """The pool of these tensors; for copies, which a compiler may make of them, one of the moment."""
    raw, kbuf, ubuf, w, gbuf, pcum, hcnt, _, _ = arguments
    pool = _pools.get(hcnt.data_ptr())
    if pool is not None:
        own = (pool.raw, pool.kbuf, pool.ubuf, pool.w, pool.gbuf, pool.pcum)
        given = (raw, kbuf, ubuf, w, gbuf, pcum)
        if all(a.data_ptr() == b.data_ptr() for a, b in zip(own, given, strict=True)):
            return pool._native
    return _flush.create_pool(*arguments)
