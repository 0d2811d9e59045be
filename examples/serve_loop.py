# SPDX-License-Identifier: Apache-2.0
"""A decode loop over a pool: sequences come with a prefilled state, are forked, and go; one call a token steps them all
and flushes the windows that are full.

    python examples/serve_loop.py [--device cuda | --arrays numpy] [--tokens 200]

The model is one layer of Kimi Delta Attention whose rows are drawn at random. Beside the pool every sequence's state is
kept dense, in fp32, and every output is held against that one's, as is the exported state of a sequence that ends. A
fork and its origin get one token in common, and must answer with the same bits; no two heads of a sequence may be due
in the same token. On a GPU the call is captured in a CUDA graph once and replayed for every token. Needs PyTorch, or
ml_dtypes for NumPy's bfloat16; exits 1 when something is wrong.
"""

import argparse
import sys

import numpy as np
from leapquant import kda

HEADS, DIM, WINDOW, RANK = 4, 128, 16, 4
SEQUENCES = 12  # as many slots, and the reserved one
PROMPT = 24  # tokens of a prefill
ROW = 3 * HEADS * DIM  # queries, keys and values of a token
OFFSETS = np.arange(HEADS, dtype=np.int32) * WINDOW // HEADS  # heads start staggered: their flushes, too, are spread
BOUNDS = {"output": 0.05, "state": 0.02}  # mean errors of a program, over the mean magnitude of what is exact


class Numpy:
    """Arrays of NumPy, on the CPU."""

    name, device = "numpy", "cpu"

    def array(self, values, dtype):
        if dtype == "bfloat16":
            from ml_dtypes import bfloat16 as dtype
        return np.array(values, dtype)

    def host(self, array):
        return array.astype(np.float32)


class Torch:
    """Arrays of PyTorch, on one device."""

    name = "torch"

    def __init__(self, device):
        import torch

        self.torch, self.device = torch, device

    def array(self, values, dtype):
        return self.torch.from_numpy(np.array(values)).to(self.device, getattr(self.torch, dtype))

    def host(self, array):
        return array.float().cpu().numpy()


def normalised(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


class Layer:
    """The layer, with dense states in fp32."""

    def __init__(self, random):
        self.random = random
        self.A_log = np.log(random.uniform(0.5, 2, HEADS)).astype(np.float32)
        self.dt_bias = (random.standard_normal((HEADS, DIM)) * 0.5 - 4).astype(np.float32)
        self.states = np.zeros((SEQUENCES + 1, HEADS, DIM, DIM), np.float32)

    def draw(self, count):
        """Rows of a token, as the layer's projections would give them: mixed, a, b."""
        shapes = (count, ROW), (count, HEADS, DIM), (count, HEADS)
        return [self.random.standard_normal(shape, np.float32) for shape in shapes]

    def step(self, slots, rows):
        """The outputs of the sequences in `slots`, and their states one token on."""
        mixed, a, b = rows
        query, key, value = np.moveaxis(mixed.reshape(len(slots), 3, HEADS, DIM), 1, 0)
        query, key = normalised(query) * DIM**-0.5, normalised(key)
        decay = np.exp(-np.exp(self.A_log)[:, None] * np.log1p(np.exp(a + self.dt_bias)))
        state = self.states[slots] * decay[..., None, :]
        update = (value - np.einsum("nhvk,nhk->nhv", state, key)) / (1 + np.exp(-b))[..., None]
        self.states[slots] = state + update[..., :, None] * key[..., None, :]
        return np.einsum("nhvk,nhk->nhv", self.states[slots], query)


class Server:
    """The pool, and what a server keeps beside it."""

    def __init__(self, arrays, random):
        self.arrays, self.layer = arrays, Layer(random)
        self.pool = kda.Pool(
            SEQUENCES + 1, arrays.device, num_heads=HEADS, rank=RANK, layout="compact", arrays=arrays.name
        )
        self.free = list(range(1, SEQUENCES + 1))
        self.left = {}  # tokens to come, by slot
        self.q0 = arrays.array(random.standard_normal((DIM, RANK)), "float32")
        self.weights = [arrays.array(weight, "float32") for weight in (self.layer.A_log, self.layer.dt_bias)]
        # A graph reads and writes these: they keep their addresses, and their contents change.
        self.idx = self.slots(*[0] * SEQUENCES)
        self.rows = [arrays.array(row, "bfloat16") for row in self.layer.draw(SEQUENCES)]
        self.o = arrays.array(np.zeros((SEQUENCES, HEADS, DIM)), "bfloat16")
        self.decode = self.captured() if arrays.device == "cuda" else self.decode_now
        self.worst = {}

    def slots(self, *slots):
        return self.arrays.array(np.array(slots, np.int32), "int32")

    def decode_now(self):
        kda.step_flush_inplace(self.pool, self.idx, *self.rows, *self.weights, self.o, self.q0)

    def captured(self):
        cuda = self.arrays.torch.cuda
        self.decode_now()  # nothing is selected yet
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            self.decode_now()
        return graph.replay

    def admit(self, tokens):
        """Give a new sequence a slot, with the state that its prompt leaves."""
        slot = self.free.pop()
        self.layer.states[slot] = 0
        for _ in range(PROMPT):
            self.layer.step([slot], self.layer.draw(1))
        state = self.arrays.array(self.layer.states[slot, None], "float32")
        offset = self.arrays.array(OFFSETS[None], "int32")
        kda.import_state(self.pool, self.slots(slot), state, self.q0, offset=offset)
        self.left[slot] = tokens

    def fork(self, origin, tokens):
        """Let another sequence go on from where `origin` stands."""
        slot = self.free.pop()
        kda.copy_slots(self.pool, self.slots(origin), self.slots(slot))
        self.layer.states[slot] = self.layer.states[origin]
        self.left[slot] = tokens
        return origin, slot

    def step(self, twins):
        """A token of every sequence; the same one for two twins. Returns how many windows it filled and flushed."""
        selected = sorted(self.left)
        places = [selected.index(slot) for slot in twins]
        rows = self.layer.draw(SEQUENCES)
        for row, given in zip(rows, self.rows, strict=True):
            row[places] = row[places[:1]]
            given[:] = self.arrays.array(row, "bfloat16")
        self.idx[:] = self.slots(*selected, *[0] * (SEQUENCES - len(selected)))
        self.decode()
        self.check(selected, places)
        self.retire([slot for slot in selected if self.left[slot] == 1])
        for slot in self.left:
            self.left[slot] -= 1
        flushed = (self.arrays.host(self.pool.hcnt)[selected] == WINDOW).sum(-1)
        if flushed.max() > 1:
            sys.exit("wrong: heads of one sequence were due in the same token")
        return int(flushed.sum())

    def check(self, selected, places):
        output = self.arrays.host(self.o)
        if output[len(selected) :].any():
            sys.exit("wrong: an output without a sequence")
        if (output[places] != output[places[:1]]).any():
            sys.exit("wrong: a fork and its origin differ")
        taken = [self.arrays.host(row)[: len(selected)] for row in self.rows]
        self.compare("output", output[: len(selected)], self.layer.step(selected, taken))

    def retire(self, slots):
        """Free the slots of sequences that end."""
        if slots:
            states = kda.export_state(self.pool, self.slots(*slots))
            self.compare("state", self.arrays.host(states), self.layer.states[slots])
        for slot in slots:
            del self.left[slot]
            self.free.append(slot)

    def compare(self, what, ours, exact):
        """Keep the largest error of a program."""
        inner = tuple(range(2, exact.ndim))
        error = abs(ours - exact).mean(inner) / abs(exact).mean(inner)
        self.worst[what] = max(self.worst.get(what, 0.0), float(error.max()))


def serve(server, random, tokens):
    """Returns how many flushes and forks there were."""
    flushes = forks = 0
    for _ in range(tokens):
        while not server.left or (server.free and random.random() < 0.15):
            server.admit(tokens=random.integers(20, 80))
        twins = ()
        if server.free and random.random() < 0.1:
            twins = server.fork(random.choice(list(server.left)), tokens=random.integers(20, 80))
            forks += 1
        flushes += server.step(twins)
    return flushes, forks


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--arrays", choices=["torch", "numpy"], default="torch")
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    if options.arrays == "numpy" and options.device != "cpu":
        parser.error("NumPy's arrays live on the CPU")

    random = np.random.default_rng(1)
    server = Server(Numpy() if options.arrays == "numpy" else Torch(options.device), random)
    flushes, forks = serve(server, random, options.tokens)
    trouble = server.pool.errors()
    print(f"{flushes} flushes and {forks} forks in {options.tokens} tokens, {options.arrays} on {options.device}")
    for what, error in server.worst.items():
        print(f"largest mean error, {what}: {error:.4f} of the mean magnitude")
    if trouble or flushes == 0 or not all(error <= BOUNDS[what] for what, error in server.worst.items()):
        sys.exit(f"wrong: errors {trouble}, flushes {flushes}, bounds {BOUNDS}")


if __name__ == "__main__":
    main()
