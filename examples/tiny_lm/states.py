# SPDX-License-Identifier: Apache-2.0
"""Where the recurrent states of n sequences live: in a leapquant pool a layer, or dense in fp32, bfloat16 or int8.

A store's `step(layer, mixed, a, b)` advances every sequence by a token. bfloat16 in: `mixed` [n, 3 H D], queries, keys
and values; `a` [n, H, D] and `b` [n, H], the pre-activations of gate and beta. bfloat16 out: [n, H, D]. docs/format.md
has the formulas. `bytes` is what a sequence's states take, in all layers; `check()` raises when a step went wrong.
"""

import numpy as np
from leapquant import kda
from model import DIM, HEADS, sigmoid

WINDOW, RANK = 16, 4


class PoolStates:
    """Checkpoints and windows. The windows begin at different fills, so that no token flushes all of them."""

    def __init__(self, model, sequences):
        arrays = model.arrays
        self.layers = model.layers
        self.pools = [
            kda.Pool(
                sequences + 1, num_heads=HEADS, rank=RANK, layout="compact", device=arrays.device, arrays=arrays.name
            )
            for _ in self.layers
        ]
        self.idx = arrays.array(np.arange(1, sequences + 1, dtype=np.int32))  # slot 0 is reserved
        self.q0 = arrays.array(np.random.default_rng(1).standard_normal((DIM, RANK), np.float32))
        self.o = arrays.to_bf16(arrays.array(np.zeros((sequences, HEADS, DIM), np.float32)))
        programs = arrays.array(np.arange(len(self.pools) * sequences * HEADS, dtype=np.int32))
        for pool, counters in zip(self.pools, programs.reshape(-1, sequences, HEADS), strict=True):
            pool.hcnt[1:] = counters % WINDOW  # the entries below are empty ones: their weights are 0
        self.bytes = sum(map(_slot_bytes, self.pools))

    def step(self, layer, mixed, a, b):
        weights = self.layers[layer]
        inputs = (mixed, a, b, weights.A_log, weights.dt_bias)
        kda.step_flush_inplace(self.pools[layer], self.idx, *inputs, self.o, self.q0)
        return self.o

    def check(self):
        for layer, pool in enumerate(self.pools):
            if errors := pool.errors():
                raise RuntimeError(f"layer {layer}: {errors}")


def _slot_bytes(pool):
    tensors = (pool.codes, pool.s_k, pool.s_v, pool.uq, pool.kbuf, pool.ubuf, pool.w, pool.gbuf, pool.pcum, pool.hcnt)
    return sum(tensor[0].nbytes for tensor in tensors)


class DenseStates:
    """Dense states, stored as fp32 between tokens. Others store what `encode` makes of them."""

    def __init__(self, model, sequences):
        self.arrays, self.layers = model.arrays, model.layers
        shape = (sequences, HEADS, DIM, DIM)
        self.stored = [self.encode(self.arrays.array(np.zeros(shape, np.float32))) for _ in self.layers]
        self.bytes = sum(part[0].nbytes for parts in self.stored for part in parts)

    def encode(self, state):
        """fp32 [n, H, V, K] -> a tuple of what is stored."""
        return (state,)

    def decode(self, state):
        return state

    def step(self, layer, mixed, a, b):
        weights, to_fp32, xp = self.layers[layer], self.arrays.to_fp32, self.arrays.xp
        q, k, v = (part.reshape(-1, HEADS, DIM, 1) for part in _thirds(to_fp32(mixed)))
        q, k = _normalised(xp, q) * DIM**-0.5, _normalised(xp, k)
        beta = to_fp32(self.arrays.to_bf16(sigmoid(xp, to_fp32(b))))[..., None, None]
        gate = -xp.exp(weights.A_log)[:, None] * _softplus(xp, to_fp32(a) + weights.dt_bias)
        state = self.decode(*self.stored[layer]) * xp.exp(gate)[..., None, :]
        state += beta * (v - state @ k) * k.reshape(-1, HEADS, 1, DIM)
        self.stored[layer] = self.encode(state)
        return self.arrays.to_bf16((state @ q)[..., 0])

    def check(self):
        pass


def _thirds(row):
    width = HEADS * DIM
    return row[:, :width], row[:, width : 2 * width], row[:, 2 * width :]


def _normalised(xp, x):
    return x / xp.sqrt((x * x).sum(-2, keepdims=True) + 1e-6)


def _softplus(xp, x):
    return xp.where(x > 0, x, 0.0) + xp.log1p(xp.exp(-abs(x)))


class Bf16States(DenseStates):
    """Rounded to bfloat16 after every token."""

    def encode(self, state):
        return (self.arrays.to_bf16(state),)

    def decode(self, stored):
        return self.arrays.to_fp32(stored)


class Int8States(DenseStates):
    """Rounded to int8 after every token, with a scale a row: its largest magnitude over 127."""

    def encode(self, state):
        xp = self.arrays.xp
        scale = xp.amax(abs(state), -1)[..., None] / 127
        scale = xp.clip(scale, 1e-30, None)  # a row of zeros has codes of zero
        return self.arrays.to_int8(xp.round(state / scale)), scale

    def decode(self, codes, scale):
        return codes * scale


STORES = {"fp32": DenseStates, "leapquant": PoolStates, "bf16": Bf16States, "int8": Int8States}
