# SPDX-License-Identifier: Apache-2.0
"""Steps, as the package's functions and the operations of torch.library share them."""

from . import _native
from ._arrays import argument, arrays_like, output
from ._flush import Checkpoint, call, packed_arguments, program_inputs
from ._gates import WINDOW_TENSORS

_TOKEN = {"qx": 2, "kx": 2, "vx": 2, "a": 2, "b": 2, "A_log": 0, "dt_bias": 0}
_ROWS = ("mixed", "a", "b", "A_log", "dt_bias")
# What is returned after the output, of gates that have the tensor: its entry h, or what takes its place.
_ENTRIES = {"k_row": "kbuf", "u_row": "ubuf", "g_row": "gbuf"}
_SOURCES = {**_ENTRIES, "w_new": "w", "pcum_new": "pcum", "p_new": "p"}


def step_inputs(gate):
    """What the functional form takes, in its order, and the dimension from which on each must be contiguous."""
    return {**program_inputs(gate), "h": 2, **_TOKEN}


def step_results(gate):
    """The names of what the functional form returns, in its order."""
    return ("o", *(name for name, source in _SOURCES.items() if source in gate.window))


def result_of(gate, name, given):
    """The shape and the dtype of a result of a valid call."""
    if name == "o":
        return given["vx"].shape, "bfloat16"
    shape = given[_SOURCES[name]].shape
    return (*shape[:2], *shape[3:]) if name in _ENTRIES else shape, gate.window[_SOURCES[name]].dtype


def step(gate, inputs, lower_bound):
    """See kda.step and gdn.step: the results, one after another."""
    given = packed_arguments(step_inputs(gate), inputs)
    library = arrays_like(inputs[0])
    # Where the shapes are wrong, the library says so.
    results = {name: library.empty(*result_of(gate, name, given)) for name in step_results(gate)}
    outputs = {name: output(name, array) for name, array in results.items()}
    call(
        _native.step,
        gate.name,
        *map(given.get, (*Checkpoint._fields, *WINDOW_TENSORS, "h", *_TOKEN)),
        *map(outputs.get, ("o", *_SOURCES)),
        _bound(lower_bound),
    )
    return tuple(results.values())


def step_inplace(pool, idx, *rest):
    *rows, o, lower_bound = rest
    call(_native.step_inplace, pool, *_arguments(idx, rows), output("o", o), _bound(lower_bound))


def step_flush_inplace(pool, idx, *rest):
    *rows, o, q0, lower_bound = rest
    arguments = _arguments(idx, rows)
    call(_native.step_flush_inplace, pool, *arguments, output("o", o), argument("q0", q0), _bound(lower_bound))


def draft(pool, idx, *rest):
    *rows, o, scratch, lower_bound = rest
    arguments = _arguments(idx, rows)
    call(_native.draft, pool, *arguments, output("o", o), output("scratch", scratch), _bound(lower_bound))


def commit(pool, idx, tokens, *rest):
    arguments = [argument(name, array) for name, array in zip(("scratch", "accepted", "q0"), rest, strict=True)]
    call(_native.commit, pool, argument("idx", idx), tokens, *arguments)


def _arguments(idx, rows):
    return [argument("idx", idx), *(argument(name, array) for name, array in zip(_ROWS, rows, strict=True))]


def _bound(lower_bound):
    return None if lower_bound is None else float(lower_bound)
