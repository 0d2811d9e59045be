# SPDX-License-Identifier: Apache-2.0
"""Steps, as kda.py and the operations of torch.library share them."""

from typing import Any, NamedTuple

from . import _native
from ._arrays import argument, arrays_like, output
from ._flush import call, packed_arguments, program_inputs
from ._gates import KDA


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


_INPUTS = {**program_inputs(KDA), "h": 2, "qx": 2, "kx": 2, "vx": 2, "a": 2, "b": 2, "A_log": 0, "dt_bias": 0}
_ROWS = ("mixed", "a", "b", "A_log", "dt_bias")


def step(*inputs, lower_bound):
    """See kda.step."""
    arguments = packed_arguments(_INPUTS, inputs)
    shapes = {name: array.shape for name, array in arguments.items()}
    library = arrays_like(inputs[0])
    # Of the shapes that a valid call has. Where these are wrong, the library says so.
    results = Step(
        o=library.empty(shapes["vx"], "bfloat16"),
        k_row=library.empty(shapes["kx"], "bfloat16"),
        u_row=library.empty(shapes["vx"], "bfloat16"),
        g_row=library.empty(shapes["a"], "float16"),
        w_new=library.empty(shapes["w"], "float32"),
        pcum_new=library.empty(shapes["pcum"], "float32"),
    )
    outputs = [output(name, array) for name, array in results._asdict().items()]
    call(_native.step, *arguments.values(), *outputs, _bound(lower_bound))
    return results


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
