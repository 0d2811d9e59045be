# SPDX-License-Identifier: Apache-2.0
"""Filling a pool's slots, and reading them back."""

import numpy as np
from families import WINDOWS

OWN_BYTES = {
    "kda": ("raw", "kbuf", "ubuf", "w", "gbuf", "pcum", "hcnt"),
    "gdn": ("raw", "kbuf", "ubuf", "w", "p", "hcnt"),
}
WINDOW = 16


def gate_of(pool):
    return "gdn" if hasattr(pool, "p") else "kda"


def fill(pool, slots, inputs):
    """Make the programs of `inputs` those of `slots`; all of them due, unless h says how full they are."""
    key_dim = inputs["u"].shape[-1]
    pool.codes[slots], pool.s_k[slots], pool.s_v[slots] = inputs["codes"], inputs["s_k"], inputs["s_v"]
    pool.uq[slots, :, :, :key_dim], pool.uq[slots, :, :, key_dim:] = inputs["u"], inputs["q"]
    for name in WINDOWS[gate_of(pool)]:
        getattr(pool, name)[slots] = inputs[name][..., None] if name == "p" else inputs[name]
    pool.hcnt[slots] = inputs.get("h", WINDOW)


def filled(gate, library, inputs, **options):
    """A pool whose slots from 1 on hold the programs of `inputs`."""
    batch, heads = inputs["w"].shape[:2]
    pool = gate.pool(library, batch + 1, num_heads=heads, **options)
    fill(pool, slice(1, None), inputs)
    return pool


def indices(library, *values):
    return library.from_numpy(np.array(values, np.int32))


def checkpoint(pool, slots):
    """The tensors of `slots`, as run returns them."""
    key_dim = pool.codes.shape[-1]
    factors = pool.uq[slots]
    return pool.codes[slots], pool.s_k[slots], pool.s_v[slots], factors[..., :key_dim], factors[..., key_dim:]


def window(pool, slots):
    """What a flush resets of `slots`."""
    return [getattr(pool, name)[slots] for name in WINDOWS[gate_of(pool)][2:]]


def is_reset(pool, slots):
    empty = {"w": 0, "gbuf": 1, "pcum": 0, "p": 1}
    return all((getattr(pool, name)[slots] == empty[name]).all() for name in WINDOWS[gate_of(pool)][2:])


def bits(library, tensors):
    return [library.bits(tensor) for tensor in tensors]


def own_bits(library, pool):
    return {name: library.bits(getattr(pool, name)) for name in OWN_BYTES[gate_of(pool)]}


def take(inputs, items):
    return {name: array if name == "q0" else array[items] for name, array in inputs.items()}
