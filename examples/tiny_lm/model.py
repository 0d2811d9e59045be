# SPDX-License-Identifier: Apache-2.0
"""The forward pass of the tiny language model, one byte of every sequence at a time.

n sequences, width 256, H = 2 heads of D = 128 channels. All arithmetic is fp32; what goes to the recurrence and what
comes back is bfloat16, as in an engine. The recurrence itself, and so every state of size D x D, is the store's
(states.py).
"""

import numpy as np
from arrays import read_safetensors

LAYERS, HEADS, DIM = 4, 2, 128
CONVOLUTION = 4  # tokens that the short convolution sees, the current one among them
EPSILON = 1e-5


def sigmoid(xp, x):
    small = xp.exp(-abs(x))  # of |x|, so that nothing overflows
    return xp.where(x >= 0, 1.0, small) / (1 + small)


def silu(xp, x):
    return x * sigmoid(xp, x)


def rms(xp, x, weight):
    return x / xp.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


class Layer:
    """One block: attention with a recurrent state, then a gated feed-forward network."""

    def __init__(self, weights, arrays):
        """`weights`: tensors of this block by name, NumPy's."""
        xp = self.xp = arrays.xp
        self.arrays = arrays
        w = {name: arrays.array(array) for name, array in weights.items()}
        self.norm, self.ff_norm, self.head_norm = w["n1.w"], w["n2.w"], w["att.on.w"]
        # Queries, keys and values as one row, in the order that the recurrence takes them.
        self.qkv = xp.concatenate([w[f"att.{name}.weight"] for name in "qkv"]).T
        self.taps = xp.concatenate([w[f"att.c{name}.w"] for name in "qkv"]).T  # [CONVOLUTION, 3 H D], the oldest first
        self.beta = w["att.b.weight"].T
        self.decay = w["att.f1.weight"].T, w["att.f2.weight"].T
        self.out_gate = w["att.g1.weight"].T, w["att.g2.weight"].T, w["att.g2.bias"]
        self.out = w["att.o.weight"].T
        self.ff = w["gate.weight"].T, w["up.weight"].T, w["dn.weight"].T
        self.A_log, self.dt_bias = w["att.A_log"], w["att.dt_bias"].reshape(HEADS, DIM)

    def recurrence_inputs(self, x, past):
        """Of normalised x [n, 256]: q, k and v as one row [n, 3 H D], gate [n, H, D] and beta [n, H], before their
        activations, all bfloat16. `past` [n, CONVOLUTION, 3 H D], the projections of the last tokens, moves on."""
        past[:, :-1] = past[:, 1:] + 0  # not in place: the two overlap
        past[:, -1] = x @ self.qkv
        mixed = silu(self.xp, (past * self.taps).sum(1))
        gate = (x @ self.decay[0] @ self.decay[1]).reshape(-1, HEADS, DIM)
        return tuple(map(self.arrays.to_bf16, (mixed, gate, x @ self.beta)))

    def attention(self, x, past, recurrence):
        o = self.arrays.to_fp32(recurrence(*self.recurrence_inputs(x, past)))
        down, up, bias = self.out_gate
        gate = sigmoid(self.xp, x @ down @ up + bias)
        return (rms(self.xp, o, self.head_norm).reshape(-1, HEADS * DIM) * gate) @ self.out

    def feed_forward(self, x):
        gate, up, down = self.ff
        return (silu(self.xp, x @ gate) * (x @ up)) @ down

    def forward(self, x, past, recurrence):
        """x [n, 256] -> [n, 256]. `recurrence(mixed, a, b)` advances this layer's states and gives o [n, H, D]."""
        x = x + self.attention(rms(self.xp, x, self.norm), past, recurrence)
        return x + self.feed_forward(rms(self.xp, x, self.ff_norm))


class Model:
    """The weights. What belongs to sequences is a Decoder's."""

    def __init__(self, path, arrays):
        weights = read_safetensors(path)
        self.arrays = arrays
        self.embedding, self.head, self.norm = (arrays.array(weights[name]) for name in ("e.weight", "h.weight", "n.w"))
        self.layers = [Layer(self._block(weights, f"bl.{i}."), arrays) for i in range(LAYERS)]

    @staticmethod
    def _block(weights, prefix):
        return {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}


class Decoder:
    """n sequences that advance by one byte a call, with their states in `states` (see states.py)."""

    def __init__(self, model, states, sequences):
        self.model, self.states = model, states
        shape = (sequences, CONVOLUTION, 3 * HEADS * DIM)
        self.past = [model.arrays.array(np.zeros(shape, np.float32)) for _ in model.layers]

    def forward(self, tokens):
        """tokens: int64 [n], the next byte of each sequence -> logits of the one after it, fp32 [n, 256]."""
        model = self.model
        x = model.embedding[tokens]
        for i, layer in enumerate(model.layers):
            x = layer.forward(x, self.past[i], lambda *inputs, i=i: self.states.step(i, *inputs))
        return rms(model.arrays.xp, x, model.norm) @ model.head.T
