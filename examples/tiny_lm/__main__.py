# SPDX-License-Identifier: Apache-2.0
"""A small trained language model of bytes, with its recurrent states in leapquant pools or dense.

    python examples/tiny_lm score                  # held-out text with each kind of state, side by side
    python examples/tiny_lm write --prompt 'def '  # text, with leapquant's states
    python examples/tiny_lm score --device cuda    # on PyTorch; without --device on NumPy, which is all that it needs

`score --check` exits with 1 when leapquant's states cost more than they should.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import leapquant
import numpy as np
from arrays import make_arrays
from model import Decoder, Model
from states import STORES

HERE = Path(__file__).resolve().parent
BASE = "fp32"  # what the others are compared with
# What --check allows on the whole of the held-out text: bits per byte away from fp32 states, and nats per byte. On less
# text chance weighs more: bits per byte over n bytes have a standard error of sqrt(2 KL / n) / ln 2.
MOST_BITS, MOST_KL = 0.002, 0.0003

# ---- scores ----------------------------------------------------------------------------------------------------------


class Score:
    """What one kind of state makes of a text."""

    def __init__(self, name, model, sequences):
        self.name, self.arrays = name, model.arrays
        self.states = STORES[name](model, sequences)
        self.decoder = Decoder(model, self.states, sequences)
        self.seconds = []  # of every call
        self.tokens, self.nats, self.kl = 0, 0.0, 0.0

    def log_probabilities(self, tokens):
        """Of the next byte of every sequence, in double; timed until they are on the host."""
        begin = time.perf_counter()
        logits = self.arrays.to_numpy(self.decoder.forward(self.arrays.array(tokens)))
        self.seconds.append(time.perf_counter() - begin)
        return log_softmax(logits)

    def add(self, log_p, base, targets):
        self.tokens += len(targets)
        self.nats -= log_p[np.arange(len(targets)), targets].sum()
        self.kl += (np.exp(base) * (base - log_p)).sum()

    def result(self):
        self.states.check()
        return {
            "states": self.name,
            "bits_per_byte": self.nats / self.tokens / np.log(2),
            "kl": self.kl / self.tokens,
            "bytes": self.states.bytes,
            "tokens_per_s": self.tokens / len(self.seconds) / statistics.median(self.seconds),
        }


def log_softmax(logits):
    x = logits.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def score(model, text):
    """text: int64 [n, T]. All kinds take turns at every byte, so that none has the machine at a better time."""
    scores = {name: Score(name, model, len(text)) for name in STORES}
    for byte, following in zip(text.T[:-1], text.T[1:], strict=True):
        rows = {name: each.log_probabilities(byte) for name, each in scores.items()}
        for name, each in scores.items():
            each.add(rows[name], rows[BASE], following)
    return [each.result() for each in scores.values()]


def complaints(results):
    by_name = {result["states"]: result for result in results}
    ours, base, bf16 = (by_name[name] for name in ("leapquant", BASE, "bf16"))
    bits = abs(ours["bits_per_byte"] - base["bits_per_byte"])
    if not bits <= MOST_BITS:
        yield f"{bits:.4f} bits per byte away from {BASE} states, expected at most {MOST_BITS}"
    if not ours["kl"] <= MOST_KL:
        yield f"KL {ours['kl']:.6f}, expected at most {MOST_KL}"
    if not ours["kl"] < bf16["kl"]:
        yield f"KL {ours['kl']:.6f}, expected less than that of bf16 states, {bf16['kl']:.6f}"


def show(results):
    print(f"{'states':<10}{'bits/byte':>11}{'KL, nats/byte':>15}{'bytes a sequence':>18}{'tokens/s':>10}")
    for result in results:
        print(
            f"{result['states']:<10}{result['bits_per_byte']:>11.4f}{result['kl']:>15.6f}"
            f"{result['bytes']:>18,}{result['tokens_per_s']:>10.0f}"
        )


def device_name(arrays):
    if str(arrays.device).startswith("cuda"):
        return arrays.xp.cuda.get_device_name(arrays.device)
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def commit():
    command = ["git", "-C", HERE, "describe", "--always", "--dirty", "--exclude", "*"]
    return os.environ.get("LQ_COMMIT") or subprocess.run(command, capture_output=True, text=True).stdout.strip()


def record(arrays, text, results):
    return {
        "command": shlex.join(["python", "examples/tiny_lm", *sys.argv[1:]]),
        "commit": commit(),
        "leapquant": leapquant.__version__,
        "arrays": f"{arrays.xp.__name__} {arrays.xp.__version__}",
        "device": device_name(arrays),
        "threads": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "sequences": len(text),
        "bytes_a_sequence": text.shape[1],
        "results": results,
    }


def run_score(options):
    arrays = make_arrays(options.device)
    text = np.frombuffer(options.text.read_bytes(), np.uint8).astype(np.int64)
    length = len(text) // options.sequences
    if length < 2:
        sys.exit(f"{options.text}: {len(text)} bytes, expected at least two for each of {options.sequences} sequences")
    text = text[: length * options.sequences].reshape(options.sequences, length)[:, : options.bytes]
    results = score(Model(options.model, arrays), text)
    show(results)
    if options.json:
        options.json.write_text(json.dumps(record(arrays, text, results), indent=1) + "\n", encoding="utf-8")
    if options.check and (found := list(complaints(results))):
        sys.exit("leapquant's states: " + "; ".join(found))


# ---- text ------------------------------------------------------------------------------------------------------------


def sample(logits, temperature, random):
    if temperature == 0:
        return int(logits.argmax())
    p = np.exp(log_softmax(logits / temperature))
    return int(random.choice(len(p), p=p / p.sum()))


def run_write(options):
    prompt = options.prompt.encode()
    if not prompt:
        sys.exit("--prompt: expected at least one byte")
    arrays = make_arrays(options.device)
    model = Model(options.model, arrays)
    states = STORES[options.states](model, 1)
    decoder, random = Decoder(model, states, 1), np.random.default_rng(options.seed)
    text = bytearray(prompt)
    for position in range(len(prompt) + options.bytes - 1):
        logits = arrays.to_numpy(decoder.forward(arrays.array(np.array([text[position]]))))[0]
        if position == len(text) - 1:
            text.append(sample(logits, options.temperature, random))
    states.check()
    print(text.decode(errors="replace"))


# ---- command line ----------------------------------------------------------------------------------------------------


def at_least(least):
    def number(text):
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, got {text}")
        return int(text)

    return number


def main():
    parser = argparse.ArgumentParser(
        prog="tiny_lm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)

    scores = commands.add_parser("score", help="score a text with each kind of state")
    scores.add_argument("--text", type=Path, default=HERE / "heldout.txt")
    scores.add_argument("--sequences", type=at_least(1), default=2, help="the text is cut into as many (default: 2)")
    scores.add_argument("--bytes", type=at_least(2), help="of each sequence, at most")
    scores.add_argument("--check", action="store_true", help="exit with 1 when leapquant's states cost too much")
    scores.add_argument("--json", type=Path, help="a file for the record")
    scores.set_defaults(run=run_score)

    writes = commands.add_parser("write", help="continue a prompt")
    writes.add_argument("--prompt", default="def ")
    writes.add_argument("--bytes", type=at_least(1), default=400)
    writes.add_argument("--states", choices=STORES, default="leapquant")
    writes.add_argument("--temperature", type=float, default=0.5, help="0 takes the likeliest byte")
    writes.add_argument("--seed", type=int, default=1)
    writes.set_defaults(run=run_write)

    for command in (scores, writes):
        command.add_argument("--device", help="cpu, cuda, cuda:1, ... on PyTorch (default: NumPy)")
        command.add_argument("--model", type=Path, default=HERE / "tiny_kda_lm.safetensors")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
