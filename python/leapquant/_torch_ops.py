# SPDX-License-Identifier: Apache-2.0
"""The operations as torch.library knows them, so that torch.compile and torch.export trace through.

Eager calls don't come by here: dispatching would cost more than an in-place flush.
"""

import weakref
from typing import Any

import torch
from torch import Tensor

from . import _flush, _native, _step

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


@torch.library.custom_op(f"{_NAMESPACE}::kda_step", mutates_args=())
def step(
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
    h: Tensor,
    qx: Tensor,
    kx: Tensor,
    vx: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    lower_bound: float | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    inputs = (codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, h, qx, kx, vx, a, b, A_log, dt_bias)
    return tuple(_step.step(*inputs, lower_bound=lower_bound))


@step.register_fake
def _(codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, h, qx, kx, vx, a, *_):
    rows = [kx.new_empty(tensor.shape) for tensor in (vx, kx, vx)]
    return (*rows, gbuf.new_empty(a.shape), w.new_empty(w.shape), pcum.new_empty(pcum.shape))


_POOL = ("raw", "kbuf", "ubuf", "w", "gbuf", "pcum", "hcnt")
_TOKEN = "Tensor idx, Tensor mixed, Tensor a, Tensor b, Tensor A_log, Tensor dt_bias, Tensor(o!) o"


def _on_pool(name, arguments, mutated, function):
    """An operation on a pool's tensors, which calls `function(native pool, *arguments)`. Returns its call on a pool."""
    tensors = [f"Tensor({n}!) {n}" if n in mutated else f"Tensor {n}" for n in _POOL]
    schema = f"({', '.join(tensors)}, {arguments}, int rank, str layout) -> ()"

    @torch.library.custom_op(f"{_NAMESPACE}::{name}", mutates_args=mutated, schema=schema)
    def operation(*given):
        function(_native_pool(*given[: len(_POOL)], *given[-2:]), *given[len(_POOL) : -2])

    operation.register_fake(lambda *given: None)
    return lambda pool, *rest: operation(*[getattr(pool, n) for n in _POOL], *rest, pool.rank, pool.layout)


def _call(function):
    return lambda pool, *rest: _flush.call(function, pool, *rest)


_FLUSHED = ("raw", "w", "gbuf", "pcum")
_APPENDED = ("kbuf", "ubuf", "w", "gbuf", "pcum", "hcnt")

flush_inplace = _on_pool("kda_flush_inplace", "Tensor idx, Tensor q0", _FLUSHED, _call(_native.flush_inplace))
flush_now = _on_pool("kda_flush_now", "Tensor idx, Tensor q0", (*_FLUSHED, "hcnt"), _call(_native.flush_now))
reset_slots = _on_pool("kda_reset_slots", "Tensor idx", _POOL, _call(_native.reset_slots))
copy_slots = _on_pool("kda_copy_slots", "Tensor src, Tensor dst", _POOL, _call(_native.copy_slots))
step_inplace = _on_pool("kda_step_inplace", f"{_TOKEN}, float? lower_bound", (*_APPENDED, "o"), _step.step_inplace)
step_flush_inplace = _on_pool(
    "kda_step_flush_inplace",
    f"{_TOKEN}, Tensor q0, float? lower_bound",
    (*_POOL, "o"),
    _step.step_flush_inplace,
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
