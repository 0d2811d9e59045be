# SPDX-License-Identifier: Apache-2.0
"""Time the flush in PyTorch against the leapquant package: the same tensors, one run, judged against each other.

    python bench/compare_torch.py [--device cuda] [--batch 16,32] [--no-compile] [--json FILE]

eager, compiled: the `reference` of the shipped definition, as it is and through torch.compile. run, flush_inplace:
ours. On a CPU all are wall times; `taskset -c 0` keeps both sides to one core. On a GPU, eager, compiled and run are
wall times of a call and the wait for it; flush_inplace is the time between two events on the stream, over slot sets
that are rotated so that the L2 cache holds none of them. `host` is the time of the calling thread for one
flush_inplace that finds nothing due. All medians, in microseconds. The record names the commit that git or LQ_COMMIT
does. A run that the judge refuses ends with 1.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

import torch
from leapquant import __version__, kda

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
from families import FAMILIES, INPUTS  # noqa: E402
from libraries import TorchLibrary  # noqa: E402
from slots import fill  # noqa: E402

from judge import judge  # noqa: E402

DEFINITION = ROOT / "data" / "definitions" / "leapquant_kda_flush_r4_int8_h32_v128_k128.json"
HEADS, RANK = 32, 4
SLOT_SETS = 8
HOST_CALLS = 200  # fewer than a stream queues, so that no call waits for the device
WARM_UP_CYCLES = 50_000_000  # of the device's clock: the calls are queued before the first one runs


def published_reference():
    namespace = {}
    exec(json.loads(DEFINITION.read_text())["reference"], namespace)
    return namespace["run"]


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wall_time(function, device, repetitions):
    times = []
    for n in range(repetitions + 2):
        wait(device)
        start = time.perf_counter()
        function()
        wait(device)
        if n >= 2:
            times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


class SlotSets:
    """A pool with disjoint sets of slots, all due, of which every flush takes the next."""

    def __init__(self, inputs, count):
        self.inputs, self.batch = inputs, inputs["codes"].shape[0]
        self.device = inputs["codes"].device
        self.pool = kda.Pool(count * self.batch + 1, device=self.device)
        first = torch.arange(1, self.batch + 1, dtype=torch.int32, device=self.device)
        self.sets = [first + n * self.batch for n in range(count)]
        self.next = 0

    def refill(self):
        self.next = (self.next + 1) % len(self.sets)
        start = 1 + self.next * self.batch
        fill(self.pool, slice(start, start + self.batch), self.inputs)

    def flush(self):
        kda.flush_inplace(self.pool, self.sets[self.next], self.inputs["q0"])


def time_flush_inplace_cpu(sets, repetitions):
    times = []
    for _ in range(repetitions):
        sets.refill()
        start = time.perf_counter()
        sets.flush()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def time_flush_inplace_cuda(sets, repetitions):
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repetitions)]
    sets.refill()
    sets.flush()
    torch.cuda._sleep(WARM_UP_CYCLES)
    for before, after in events:
        sets.refill()
        before.record()
        sets.flush()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) * 1e3 for before, after in events)


def time_host(sets):
    """Of the calling thread, for a call that finds nothing due."""
    sets.pool.hcnt.zero_()
    times = []
    for _ in range(10):
        wait(sets.device)
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            sets.flush()
        times.append((time.perf_counter() - start) * 1e6 / HOST_CALLS)
    wait(sets.device)
    return statistics.median(times)


def compare(library, batch, compiled, repetitions):
    device = torch.device(library.device)
    inputs = FAMILIES["structured"](library, batch, HEADS, RANK)
    arguments = [inputs[name] for name in INPUTS]
    reference = published_reference()
    row = {"batch": batch, "eager": wall_time(lambda: reference(*arguments), device, repetitions)}
    if compiled:
        torch._dynamo.reset()  # for this batch alone: not a kernel that takes any
        fast = torch.compile(reference)
        row["compiled"] = wall_time(lambda: fast(*arguments), device, repetitions)
    row["run"] = wall_time(lambda: kda.run(*arguments), device, repetitions)
    cuda = device.type == "cuda"
    sets = SlotSets(inputs, SLOT_SETS if cuda else 1)
    row["flush_inplace"] = (time_flush_inplace_cuda if cuda else time_flush_inplace_cpu)(sets, repetitions)
    row["host"] = time_host(sets) if cuda else None
    figures = judge(library, inputs, kda.run(*arguments))
    row["strict_use"], row["finite"] = figures.strict_use, figures.finite
    return row


def show(row):
    cells = [f"batch {row['batch']:4d}"]
    cells += [
        f"{name} {row[name]:.1f}" for name in ("eager", "compiled", "run", "flush_inplace", "host") if row.get(name)
    ]
    cells.append(f"eager / run {row['eager'] / row['run']:.1f}")
    cells.append(f"bound used {row['strict_use']:.4f}")
    print("  ".join(cells), flush=True)


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


def commit():
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return os.environ.get("LQ_COMMIT") or done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", help="default: 16, and on a GPU all six published ones")
    parser.add_argument("--repetitions", type=int, default=16)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=pathlib.Path, help="write the record to this file")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    library = TorchLibrary(options.device)
    batches = options.batch or ("16,32,64,128,256,512" if cuda else "16")
    record = {
        "command": " ".join(["python", "bench/compare_torch.py", *sys.argv[1:]]),
        "commit": commit(),
        "leapquant": __version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "device": torch.cuda.get_device_name(library.device) if cuda else cpu_name(),
        "threads": torch.get_num_threads(),
        "heads": HEADS,
        "rank": RANK,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "results": [],
    }
    print(f"PyTorch {torch.__version__}, {record['device']}, {HEADS} heads, rank {RANK}, microseconds", flush=True)
    for batch in map(int, batches.split(",")):
        record["results"].append(compare(library, batch, not options.no_compile, options.repetitions))
        show(record["results"][-1])
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n")
    if any(row["strict_use"] > 1 or not row["finite"] for row in record["results"]):
        sys.exit("a program is over the accuracy bound")


if __name__ == "__main__":
    main()
