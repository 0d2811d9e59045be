# SPDX-License-Identifier: Apache-2.0
"""Filling a pool's slots, and reading them back."""

from families import INPUTS
from leapquant import kda
from libraries import pool_arrays

OWN_BYTES = ("raw", "kbuf", "ubuf", "w", "gbuf", "pcum", "hcnt")
WINDOW = 16


def make_pool(library, num_slots, **options):
    return kda.Pool(num_slots, **pool_arrays(library), **options)


def fill(pool, slots, inputs):
    """Make the programs of `inputs` those of `slots`; all of them due, unless h says how full they are."""
    key_dim = inputs["u"].shape[-1]
    pool.codes[slots], pool.s_k[slots], pool.s_v[slots] = inputs["codes"], inputs["s_k"], inputs["s_v"]
    pool.uq[slots, :, :, :key_dim], pool.uq[slots, :, :, key_dim:] = inputs["u"], inputs["q"]
    for name in ("kbuf", "ubuf", "gbuf", "w", "pcum"):
        getattr(pool, name)[slots] = inputs[name]
    pool.hcnt[slots] = inputs.get("h", WINDOW)


def checkpoint(pool, slots):
    """The tensors of `slots`, as run returns them."""
    key_dim = pool.codes.shape[-1]
    factors = pool.uq[slots]
    return pool.codes[slots], pool.s_k[slots], pool.s_v[slots], factors[..., :key_dim], factors[..., key_dim:]


def window(pool, slots):
    return pool.w[slots], pool.gbuf[slots], pool.pcum[slots]


def bits(library, tensors):
    return [library.bits(tensor) for tensor in tensors]


def own_bits(library, pool):
    return {name: library.bits(getattr(pool, name)) for name in OWN_BYTES}


def take(inputs, items):
    return {name: inputs[name] if name == "q0" else inputs[name][items] for name in INPUTS}
