# SPDX-License-Identifier: Apache-2.0
"""The gates: which tensors a window has of each. All else is the same for both, and written once."""

from typing import NamedTuple

from . import _native


class WindowTensor(NamedTuple):
    dtype: str
    shape: tuple[int, ...]
    """Of one program."""
    empty: float
    """What it holds where there are no entries."""


class Gate(NamedTuple):
    name: str
    """As the module and the operations of torch.library have it."""
    num_heads: int
    num_key_heads: int
    rank: int
    """Of the default geometry, as the two before."""
    shares_keys: bool
    """Whether there may be fewer key heads than heads."""
    window: dict[str, WindowTensor]
    """In the order in which calls take them."""

    def storage(self):
        """The names of the tensors that a pool consists of, in the order of the C interface."""
        return ("raw", *(name for name in WINDOW_TENSORS if name in self.window), "hcnt")


# Of all gates, in the order of the C interface. The module takes None for what a gate lacks.
WINDOW_TENSORS = ("kbuf", "ubuf", "w", "gbuf", "pcum", "p")


def _kda():
    heads, key_heads, value_dim, key_dim, window, rank = _native.default_geometry("kda")
    tensors = {
        "kbuf": WindowTensor("bfloat16", (window, key_dim), 0),
        "ubuf": WindowTensor("bfloat16", (window, value_dim), 0),
        "gbuf": WindowTensor("float16", (window, key_dim), 1),
        "w": WindowTensor("float32", (window,), 0),
        "pcum": WindowTensor("float32", (key_dim,), 0),
    }
    return Gate("kda", heads, key_heads, rank, False, tensors)


def _gdn():
    heads, key_heads, _, _, _, rank = _native.default_geometry("gdn")
    tensors = {name: KDA.window[name] for name in ("kbuf", "ubuf", "w")}
    # The one at the end is the published package's.
    return Gate("gdn", heads, key_heads, rank, True, {**tensors, "p": WindowTensor("float32", (1,), 1)})


KDA = _kda()
GDN = _gdn()
GATES = (KDA, GDN)
