# SPDX-License-Identifier: Apache-2.0
"""Time the flush in PyTorch against the leapquant package: the same tensors, one run, judged against each other.

    python bench/compare_torch.py [--device cuda] [--batch 16,32] [--family random] [--no-compile] [--json FILE]

eager, compiled: the `reference` of the shipped definition, as it is and through torch.compile, once for any batch size.
run, flush_inplace: ours. On a CPU all are wall times; `taskset -c 0` keeps both sides to one core. On a GPU, eager,
compiled and run are wall times of a call and the wait for it; flush_inplace is the time between two events on the
stream in a row of flushes, each of another set of slots, so that the L2 cache holds none of them. `host` is the time of
the calling thread for one flush_inplace that finds nothing due; in brackets, for one of no indices, which launches
nothing, and for an in-place addition in PyTorch. All medians, in microseconds. The record names the commit that
LQ_COMMIT or git does. A run that the judge refuses ends with 1.
"""

import argparse
import itertools
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

    def refill(self):
        for n in range(len(self.sets)):
            start = 1 + n * self.batch
            fill(self.pool, slice(start, start + self.batch), self.inputs)

    def flush(self, number=0):
        kda.flush_inplace(self.pool, self.sets[number], self.inputs["q0"])


def time_flush_inplace_cpu(sets, repetitions):
    times = []
    for _ in range(repetitions):
        sets.refill()
        start = time.perf_counter()
        sets.flush()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def time_flush_inplace_cuda(sets, repetitions):
    times = []
    while len(times) < repetitions:
        sets.refill()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(sets.sets) + 1)]
        torch.cuda._sleep(WARM_UP_CYCLES)
        events[0].record()
        for number, event in enumerate(events[1:]):
            sets.flush(number)
            event.record()
        torch.cuda.synchronize()
        times += [before.elapsed_time(after) * 1e3 for before, after in itertools.pairwise(events)]
    return statistics.median(times)


def time_host(function, device):
    """Of the calling thread, for one call."""
    times = []
    for _ in range(10):
        wait(device)
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            function()
        times.append((time.perf_counter() - start) * 1e6 / HOST_CALLS)
    wait(device)
    return statistics.median(times)


def host_times(sets):
    """Calls that find nothing due; calls that return before a launch; and PyTorch's own cheapest, beside them."""
    sets.pool.hcnt.zero_()
    none, q0, small = sets.sets[0][:0], sets.inputs["q0"], torch.zeros(16, device=sets.device)
    return {
        "host": time_host(sets.flush, sets.device),
        "host_unlaunched": time_host(lambda: kda.flush_inplace(sets.pool, none, q0), sets.device),
        "host_torch_add": time_host(lambda: small.add_(1), sets.device),
    }


def compare(library, batch, family, reference, compiled, repetitions):
    device = torch.device(library.device)
    inputs = FAMILIES[family](library, batch, HEADS, RANK)
    arguments = [inputs[name] for name in INPUTS]
    row = {"batch": batch, "eager": wall_time(lambda: reference(*arguments), device, repetitions)}
    if compiled:
        for tensor in arguments[:-1]:
            torch._dynamo.maybe_mark_dynamic(tensor, 0)
        row["compiled"] = wall_time(lambda: compiled(*arguments), device, repetitions)
    row["run"] = wall_time(lambda: kda.run(*arguments), device, repetitions)
    cuda = device.type == "cuda"
    sets = SlotSets(inputs, SLOT_SETS if cuda else 1)
    row["flush_inplace"] = (time_flush_inplace_cuda if cuda else time_flush_inplace_cpu)(sets, repetitions)
    row |= host_times(sets) if cuda else {}
    figures = judge(library, inputs, kda.run(*arguments))
    row["strict_use"], row["finite"] = figures.strict_use, figures.finite
    return row


def show(row):
    cells = [f"batch {row['batch']:4d}"]
    cells += [f"{name} {row[name]:.1f}" for name in ("eager", "compiled", "run", "flush_inplace") if name in row]
    if "host" in row:
        cells.append(f"host {row['host']:.2f} ({row['host_unlaunched']:.2f}; add_ {row['host_torch_add']:.2f})")
    cells.append(f"eager / run {row['eager'] / row['run']:.1f}")
    cells.append(f"bound used {row['strict_use']:.4f}")
    print("  ".join(cells), flush=True)


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine()


def command_without(record):
    """What was run, less where its record went, which is nobody else's business."""
    arguments = [a for a in sys.argv[1:] if a not in ("--json", str(record), f"--json={record}")]
    return " ".join(["python bench/compare_torch.py", *arguments])


def commit():
    command = ["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return os.environ.get("LQ_COMMIT") or done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", help="default: 16, and on a GPU all six published ones")
    parser.add_argument("--family", choices=FAMILIES, default="structured", help="of the inputs (default: structured)")
    parser.add_argument("--repetitions", type=int, default=16)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", type=pathlib.Path, help="write the record to this file")
    options = parser.parse_args()
    cuda = options.device.startswith("cuda")
    library = TorchLibrary(options.device)
    batches = options.batch or ("16,32,64,128,256,512" if cuda else "16")
    record = {
        "command": command_without(options.json),
        "commit": commit(),
        "leapquant": __version__,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "device": torch.cuda.get_device_name(library.device) if cuda else cpu_name(),
        "threads": torch.get_num_threads(),
        "family": options.family,
        "heads": HEADS,
        "rank": RANK,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "results": [],
    }
    reference = published_reference()
    compiled = None if options.no_compile else torch.compile(reference)
    print(f"PyTorch {torch.__version__}, {record['device']}, {HEADS} heads, rank {RANK}, microseconds", flush=True)
    for batch in map(int, batches.split(",")):
        record["results"].append(compare(library, batch, options.family, reference, compiled, options.repetitions))
        show(record["results"][-1])
        if options.json:
            options.json.write_text(json.dumps(record, indent=1) + "\n")
    if any(row["strict_use"] > 1 or not row["finite"] for row in record["results"]):
        sys.exit("a program is over the accuracy bound")


if __name__ == "__main__":
    main()
