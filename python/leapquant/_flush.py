# SPDX-License-Identifier: Apache-2.0
"""Calls of the module, as kda.py and the operations of torch.library share them."""

from typing import Any, NamedTuple

from . import _native
from ._arrays import argument, arrays_like, packed


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


# What the functional forms take first, in its order, and the dimension from which on each must be contiguous.
PROGRAM_INPUTS = {
    "codes": 2,
    "s_k": 2,
    "s_v": 2,
    "u": 3,
    "q": 3,
    "kbuf": 2,
    "ubuf": 2,
    "gbuf": 2,
    "w": 2,
    "pcum": 2,
}
_INPUTS = {**PROGRAM_INPUTS, "q0": 0}


def flush(*inputs, check_finite):
    """See kda.run."""
    arguments = packed_arguments(_INPUTS, inputs)
    results = _new_checkpoint(arrays_like(inputs[0]), *arguments[:5])
    call(_native.flush, *arguments, *results, check_finite)
    return results


def packed_arguments(inner, arrays):
    """What is not contiguous enough is copied: transposed factors are common in formulas."""
    return [argument(name, packed(array, first)) for (name, first), array in zip(inner.items(), arrays, strict=True)]


def create_pool(raw, kbuf, ubuf, w, gbuf, pcum, hcnt, rank, layout):
    """The library's pool over these arrays."""
    storage = {"raw": raw, "kbuf": kbuf, "ubuf": ubuf, "w": w, "gbuf": gbuf, "pcum": pcum, "hcnt": hcnt}
    return call(_native.pool_create, *(argument(name, array) for name, array in storage.items()), rank, layout)


def call(function, *arguments):
    try:
        return function(*arguments)
    except BufferError as error:  # an array that its own library won't export
        raise TypeError(str(error)) from error


def _new_checkpoint(library, codes, s_k, s_v, u, q):
    """Arrays of the shapes that a valid call has. Where these are wrong, the library says so."""
    return Checkpoint(
        codes=library.empty(codes.shape, "int8"),
        s_k=library.empty(s_k.shape, "float32"),
        s_v=library.empty(s_v.shape, "float32"),
        u=library.empty(u.shape, "float16"),
        q=library.empty(q.shape, "float16"),
    )
