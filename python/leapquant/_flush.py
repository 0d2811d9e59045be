# SPDX-License-Identifier: Apache-2.0
"""Calls of the module, as the package's functions and the operations of torch.library share them."""

from typing import Any, NamedTuple

from . import _native
from ._arrays import argument, arrays_like, packed
from ._gates import WINDOW_TENSORS


class Checkpoint(NamedTuple):
    """What `run` returns."""

    codes: Any
    """int8 [B, H, V, K], in [-127, 127]."""
    s_k: Any
    """float32 [B, H, K]: key scales."""
    s_v: Any
    """float32 [B, H, V]: value scales."""
    u: Any
    """float16 [B, H, R, K]: key factors."""
    q: Any
    """float16 [B, H, R, V]: value factors."""


_DTYPES = Checkpoint("int8", "float32", "float32", "float16", "float16")


def program_inputs(gate):
    """What the functional forms take first, in its order, and the dimension from which on each must be contiguous."""
    return {"codes": 2, "s_k": 2, "s_v": 2, "u": 3, "q": 3, **dict.fromkeys(gate.window, 2)}


def flush(gate, inputs, check_finite):
    """See kda.run."""
    given = packed_arguments({**program_inputs(gate), "q0": 0}, inputs)
    library = arrays_like(inputs[0])
    # Of the shapes that a valid call has. Where these are wrong, the library says so.
    results = Checkpoint(
        *(library.empty(given[name].shape, dtype) for name, dtype in zip(Checkpoint._fields, _DTYPES, strict=True))
    )
    names = (*Checkpoint._fields, *WINDOW_TENSORS, "q0")
    call(_native.flush, gate.name, *map(given.get, names), *results, check_finite)
    return results


def packed_arguments(inner, arrays):
    """By name. What is not contiguous enough is copied: transposed factors are common in formulas."""
    pairs = zip(inner.items(), arrays, strict=True)
    return {name: argument(name, packed(array, first)) for (name, first), array in pairs}


def create_pool(gate, storage, rank, layout, num_key_heads=None):
    """The library's pool over these arrays; as many key heads as heads, unless it is said."""
    arguments = {name: argument(name, array) for name, array in storage.items()}
    if num_key_heads is None:
        num_key_heads = storage["hcnt"].shape[1]
    names = ("raw", *WINDOW_TENSORS, "hcnt")
    return call(_native.pool_create, gate.name, *map(arguments.get, names), num_key_heads, rank, layout)


def call(function, *arguments):
    try:
        return function(*arguments)
    except BufferError as error:  # an array that its own library won't export
        raise TypeError(str(error)) from error
