# SPDX-License-Identifier: Apache-2.0
"""Time the published formula in eager PyTorch on the CPU against `leapquant bench`, in one run.

    python3 bench/compare_torch.py [--program build/cpu/cli/leapquant] [--batch 16] [--threads 1,2]

Needs PyTorch. The formula is the `reference` of the shipped definition. Prints a ratio: times of one machine only.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFINITION = ROOT / "data" / "definitions" / "leapquant_kda_flush_r4_int8_h32_v128_k128.json"
REPETITIONS = 5


def load_reference():
    namespace = {}
    exec(json.loads(DEFINITION.read_text())["reference"], namespace)
    return namespace["run"]


def random_inputs(batch, heads=32, dim=128, window=16, rank=4):
    generator = torch.Generator().manual_seed(1)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    gates = torch.rand(batch, heads, window, dim, generator=generator) * 0.4 + 0.6
    return {
        "codes": (normal(batch, heads, dim, dim) * 40).round().clamp(-127, 127).to(torch.int8),
        "s_k": torch.rand(batch, heads, dim, generator=generator) * 0.2 + 0.05,
        "s_v": torch.rand(batch, heads, dim, generator=generator) * 0.5 + 0.1,
        "u": (normal(batch, heads, rank, dim) * 0.5).half(),
        "q": (normal(batch, heads, rank, dim) * 0.5).half(),
        "kbuf": (normal(batch, heads, window, dim) * 0.3).bfloat16(),
        "ubuf": (normal(batch, heads, window, dim) * 0.3).bfloat16(),
        "gbuf": gates.half(),
        "w": torch.ones(batch, heads, window),
        "pcum": gates.half().float().log().sum(-2),
        "q0": normal(dim, rank),
    }


def time_reference(run, inputs):
    run(**inputs)
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        run(**inputs)
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def time_library(program, batch, threads):
    command = [program, "bench", "--batch", str(batch), "--due", "all", "--threads", str(threads), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    record = json.loads(done.stdout[done.stdout.index("{") :])
    return record["results"][0]["median_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "build" / "cpu" / "cli" / "leapquant"))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--threads", default="1,2")
    options = parser.parse_args()
    run = load_reference()
    inputs = random_inputs(options.batch)
    print(f"PyTorch {torch.__version__}, batch {options.batch}, 32 heads, rank 4")
    for threads in map(int, options.threads.split(",")):
        torch.set_num_threads(threads)
        reference = time_reference(run, inputs)
        library = time_library(options.program, options.batch, threads)
        print(f"{threads} thread(s): eager PyTorch {reference / library:.1f} times the library's time")


if __name__ == "__main__":
    main()
