# SPDX-License-Identifier: Apache-2.0
"""The operations as torch.library knows them, so that torch.compile and torch.export trace through.

Eager calls don't come by here: dispatching would cost more than an in-place flush.
"""

import re
import weakref
from typing import Any

import torch

from . import _flush, _native, _states, _step
from ._gates import GATES, WINDOW_TENSORS

# A second copy of the package, such as a kernel of the hub, has a name of its own.
_NAMESPACE = __package__.replace(".", "_")

# Living pools, by gate and the address of their counters.
_pools: weakref.WeakValueDictionary[tuple[str, int], Any] = weakref.WeakValueDictionary()


def remember(pool):
    """Let the operation find `pool`, and so its error word."""
    _pools[pool._gate.name, pool.hcnt.data_ptr()] = pool


def _run_of(gate):
    names = (*_flush.program_inputs(gate), "q0")
    results = ", ".join("Tensor" for _ in _flush.Checkpoint._fields)
    schema = f"({', '.join(f'Tensor {name}' for name in names)}, bool check_finite) -> ({results})"

    @torch.library.custom_op(f"{_NAMESPACE}::{gate.name}_run", mutates_args=(), schema=schema)
    def run(*given):
        return tuple(_flush.flush(gate, given[:-1], given[-1]))

    @run.register_fake
    def _(*given):
        return tuple(tensor.new_empty(tensor.shape) for tensor in given[: len(_flush.Checkpoint._fields)])

    return run


# By the gate's name, as what follows.
run = {gate.name: _run_of(gate) for gate in GATES}


def _step_of(gate):
    names, results = _step.step_inputs(gate), _step.step_results(gate)
    returned = ", ".join("Tensor" for _ in results)
    schema = f"({', '.join(f'Tensor {name}' for name in names)}, float? lower_bound) -> ({returned})"

    @torch.library.custom_op(f"{_NAMESPACE}::{gate.name}_step", mutates_args=(), schema=schema)
    def step(*given):
        return _step.step(gate, given[:-1], given[-1])

    @step.register_fake
    def _(*given):
        by_name = dict(zip(names, given, strict=False))
        made = [_step.result_of(gate, name, by_name) for name in results]
        return tuple(given[0].new_empty(shape, dtype=getattr(torch, dtype)) for shape, dtype in made)

    return step


step = {gate.name: _step_of(gate) for gate in GATES}

_TOKEN = "Tensor idx, Tensor mixed, Tensor a, Tensor b, Tensor A_log, Tensor dt_bias, Tensor(o!) o"


def _options(gate):
    """Beside its tensors, what a pool is made with."""
    key_heads = {"num_key_heads": "int"} if gate.shares_keys else {}
    return {**key_heads, "rank": "int", "layout": "str"}


def _on_pool_of(gate, name, arguments, mutated, function):
    """An operation on a pool's tensors, of which it writes those in `mutated`, and which calls `function(native pool,
    *arguments)`. Returns its call on a pool."""
    names, options = gate.storage(), _options(gate)
    mutated = {*mutated.intersection(names), *re.findall(r"\((\w+)!\)", arguments)}
    tensors = [f"Tensor({n}!) {n}" if n in mutated else f"Tensor {n}" for n in names]
    schema = ", ".join([*tensors, arguments, *(f"{kind} {n}" for n, kind in options.items())])

    @torch.library.custom_op(f"{_NAMESPACE}::{gate.name}_{name}", mutates_args=mutated, schema=f"({schema}) -> ()")
    def operation(*given):
        storage = dict(zip(names, given, strict=False))
        pool = _native_pool(gate, storage, dict(zip(options, given[-len(options) :], strict=True)))
        function(pool, *given[len(names) : -len(options)])

    operation.register_fake(lambda *given: None)
    return lambda pool, *rest: operation(
        *[getattr(pool, n) for n in names], *rest, *[getattr(pool, n) for n in options]
    )


def _on_pool(*definition):
    """The operation for every gate's pools."""
    operations = {gate.name: _on_pool_of(gate, *definition) for gate in GATES}
    return lambda pool, *rest: operations[pool._gate.name](pool, *rest)


def _call(function):
    return lambda pool, *rest: _flush.call(function, pool, *rest)


_FLUSHED = {"raw", "w", "gbuf", "pcum", "p"}
_APPENDED = {*WINDOW_TENSORS, "hcnt"}
_ALL = {"raw", *_APPENDED}

flush_inplace = _on_pool("flush_inplace", "Tensor idx, Tensor q0", _FLUSHED, _call(_native.flush_inplace))
flush_now = _on_pool("flush_now", "Tensor idx, Tensor q0", {*_FLUSHED, "hcnt"}, _call(_native.flush_now))
reset_slots = _on_pool("reset_slots", "Tensor idx", _ALL, _call(_native.reset_slots))
copy_slots = _on_pool("copy_slots", "Tensor src, Tensor dst", _ALL, _call(_native.copy_slots))
step_inplace = _on_pool("step_inplace", f"{_TOKEN}, float? lower_bound", _APPENDED, _step.step_inplace)
step_flush_inplace = _on_pool(
    "step_flush_inplace", f"{_TOKEN}, Tensor q0, float? lower_bound", _ALL, _step.step_flush_inplace
)
draft = _on_pool("draft", f"{_TOKEN}, Tensor(scratch!) scratch, float? lower_bound", set(), _step.draft)
commit = _on_pool("commit", "Tensor idx, int tokens, Tensor scratch, Tensor accepted, Tensor q0", _ALL, _step.commit)
import_state = _on_pool(
    "import_state", "Tensor idx, Tensor state, Tensor? offset, Tensor q0, str order", _ALL, _states.import_state
)
export_state = _on_pool("export_state", "Tensor idx, Tensor(state!) state, str order", set(), _states.export_state)


def _native_pool(gate, storage, options):
    """The pool of these tensors; for copies, which a compiler may make of them, one of the moment."""
    pool = _pools.get((gate.name, storage["hcnt"].data_ptr()))
    if pool is not None and all(getattr(pool, n).data_ptr() == tensor.data_ptr() for n, tensor in storage.items()):
        return pool._native
    return _flush.create_pool(gate, storage, **options)
