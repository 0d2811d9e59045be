# SPDX-License-Identifier: Apache-2.0
"""A serving loop over a pool: sequences come and go, their windows fill at different times, and one call a token
flushes those that are full.

    python examples/serve_loop.py [--device cuda] [--tokens 200]

Only the flush is the library's. What a model would append, its keys, updates and gates, is drawn at random here; and
beside the pool, every sequence's state is kept in fp32, to see how near the checkpoints stay. On a GPU the call is
captured in a CUDA graph once and replayed for every token. Needs PyTorch; exits 1 when something is wrong.
"""

import argparse
import random
import sys

import torch
from leapquant import kda

HEADS, DIM, WINDOW, RANK = 4, 128, 16, 4
SEQUENCES = 12  # as many slots, and the reserved one
LARGEST_ERROR = 0.02  # of the state's mean magnitude, after many flushes


class Server:
    """The pool, and what a server keeps beside it."""

    def __init__(self, device):
        self.device = device
        self.pool = kda.Pool(SEQUENCES + 1, device=device, num_heads=HEADS, rank=RANK, layout="compact")
        self.states = torch.zeros(SEQUENCES + 1, HEADS, DIM, DIM, device=device)  # what an fp32 server would hold
        self.free = list(range(1, SEQUENCES + 1))
        self.left = {}  # tokens to come, by slot
        # The graph reads these: they keep their addresses, and their contents change.
        self.idx = torch.zeros(SEQUENCES, dtype=torch.int32, device=device)
        self.q0 = torch.randn(DIM, RANK, device=device)
        self.flush = self.captured() if device.type == "cuda" else self.flush_now

    def flush_now(self):
        kda.flush_inplace(self.pool, self.idx, self.q0)

    def captured(self):
        self.flush_now()  # nothing is selected yet
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.flush_now()
        return graph.replay

    def admit(self, tokens):
        """Give a new sequence a slot. Its heads start staggered, so that not all of them are due at once."""
        slot, pool = self.free.pop(), self.pool
        for tensor in (pool.codes, pool.s_k, pool.s_v, pool.uq, pool.kbuf, pool.ubuf, pool.w, pool.pcum, self.states):
            tensor[slot] = 0
        pool.gbuf[slot] = 1
        pool.hcnt[slot] = torch.arange(HEADS, dtype=torch.int32, device=self.device) * WINDOW // HEADS
        self.left[slot] = tokens

    def append(self):
        """A token for every sequence: the decay and the rank-1 update that a model's step would put into the window."""
        pool, slots = self.pool, torch.tensor(sorted(self.left), device=self.device)[:, None]
        heads = torch.arange(HEADS, device=self.device)[None]
        key = torch.nn.functional.normalize(torch.randn(len(slots), HEADS, DIM, device=self.device), dim=-1).bfloat16()
        update = torch.randn(len(slots), HEADS, DIM, device=self.device).bfloat16()
        gate = (0.9 + 0.1 * torch.rand(len(slots), HEADS, DIM, device=self.device)).half()
        entry = (pool.hcnt[slots, heads] % WINDOW).long()  # a full counter means "flushed, empty"
        pool.kbuf[slots, heads, entry] = key
        pool.ubuf[slots, heads, entry] = update
        pool.gbuf[slots, heads, entry] = gate
        pool.w[slots, heads, entry] = 1
        pool.pcum[slots, heads] += gate.float().log()
        pool.hcnt[slots, heads] = (entry + 1).int()
        exact = self.states[slots, heads] * gate.float()[..., None, :]
        self.states[slots, heads] = exact + update.float()[..., :, None] * key.float()[..., None, :]

    def step(self):
        self.append()
        selected = sorted(self.left)
        self.idx.copy_(torch.tensor(selected + [0] * (SEQUENCES - len(selected)), dtype=torch.int32))
        self.flush()
        for slot in selected:
            self.left[slot] -= 1
            if self.left[slot] == 0:
                del self.left[slot]
                self.free.append(slot)

    def error(self):
        """Of all programs that have just been flushed, the largest mean error over the mean magnitude; and how many."""
        pool = self.pool
        flushed = (pool.hcnt == WINDOW) & (pool.w == 0).all(-1)
        flushed[self.free] = False
        u, q = pool.uq[..., :DIM].float(), pool.uq[..., DIM:].float()
        scales = pool.s_v[..., :, None] * pool.s_k[..., None, :] / 127
        decoded = torch.einsum("nhrv,nhrk->nhvk", q, u) + pool.codes.float() * scales
        size = self.states.abs().mean((-1, -2))[flushed]
        errors = (decoded - self.states).abs().mean((-1, -2))[flushed] / size
        return (errors.max().item() if len(errors) else 0.0), len(errors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args()
    torch.manual_seed(1)
    random.seed(1)

    server, worst, flushes = Server(torch.device(options.device)), 0.0, 0
    for _ in range(options.tokens):
        while server.free and random.random() < 0.5:
            server.admit(tokens=random.randrange(20, 80))
        if server.left:
            server.step()
            error, count = server.error()
            worst, flushes = max(worst, error), flushes + count
    trouble = server.pool.errors()
    print(f"{flushes} flushes in {options.tokens} tokens on {options.device}; largest error {worst:.4f} of mean |S|")
    if trouble or flushes == 0 or not worst <= LARGEST_ERROR:
        sys.exit(f"wrong: errors {trouble}, bound {LARGEST_ERROR}")


if __name__ == "__main__":
    main()
