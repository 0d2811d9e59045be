#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what each CUDA kernel takes on each architecture: registers, static shared memory, stack, spills.

Compiles the CUDA sources of a configured build as the build does, and asks ptxas. Needs no device. Exits 1 when a
kernel uses local memory, spilled or not. Shared memory that is sized at the launch is not the compiler's to know.
"""

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

ENTRY = re.compile(r"Compiling entry function '(?P<kernel>\S+)' for '(?P<architecture>\S+)'")
PROPERTIES = re.compile(r"Function properties for (?P<function>\S+)")
STACK = re.compile(r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill")
USED = re.compile(r"Used (?P<registers>\d+) registers")
SHARED = re.compile(r"(?P<shared>\d+) bytes smem")
FIGURES = ("registers", "shared", "stack", "stores", "loads")
TITLES = ("kernel", "architecture", "registers", "static shared", "stack", "spill stores", "spill loads")


def parse(report):
    """Yields a dict for each kernel and architecture of a report of `ptxas -v`."""
    entry = {}
    function = None
    for line in report.splitlines():
        if match := ENTRY.search(line):
            entry = {**match.groupdict(), **dict.fromkeys(FIGURES, 0)}
        elif match := PROPERTIES.search(line):
            function = match["function"]
        elif (match := STACK.search(line)) and entry and function == entry["kernel"]:
            entry.update({name: int(value) for name, value in match.groupdict().items()})
        elif (match := USED.search(line)) and entry:
            entry["registers"] = int(match["registers"])
            entry["shared"] = int(shared["shared"]) if (shared := SHARED.search(line)) else 0
        if entry and function == entry["kernel"] and entry["registers"]:
            yield entry
            entry = {}


def uses_local_memory(entry):
    return any(entry[name] for name in ("stack", "stores", "loads"))


def units(build):
    """(source, compile command) of the CUDA sources of a configured build."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if entry["file"].endswith(".cu"):
            yield entry["file"], shlex.split(entry["command"])


def compile_with(command, source, replacement, extra=()):
    """Runs a compile command of the build on `replacement` in place of `source`, and keeps no object file."""
    words = [replacement if word == source else word for word in command]
    words[words.index("-o") + 1] = "/dev/null"
    return subprocess.run([*words, *extra], capture_output=True, text=True, check=False)


def report_of(command, source):
    # The figures of a kernel that the build refuses are wanted as well.
    command = [word.replace(",--warning-as-error", "") for word in command]
    done = compile_with(command, source, source, ["-Xptxas=-v"])
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stderr


def demangled(names):
    done = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True)
    return [name.split("(", 1)[0].removeprefix("void ") for name in done.stdout.splitlines()]


def print_table(entries):
    print("| " + " | ".join(TITLES) + " |")
    print("|---" * 2 + "|---:" * len(FIGURES) + "|")
    for entry, name in zip(entries, demangled([entry["kernel"] for entry in entries]), strict=True):
        figures = [str(entry[figure]) for figure in FIGURES]
        print("| " + " | ".join([f"`{name}`", entry["architecture"], *figures]) + " |")


def try_planted(build, planted):
    """Fails, as the build would, when the build's own options refuse each kernel of `planted`."""
    source, command = next(units(build))
    done = compile_with(command, source, str(planted))
    print(done.stdout + done.stderr)
    return done.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="a configured build tree with the CUDA backend")
    parser.add_argument("--try", dest="planted", type=Path, help="only compile this file as the build would")
    arguments = parser.parse_args()
    if not list(units(arguments.build)):
        sys.exit(f"{arguments.build} has no CUDA source")
    if arguments.planted:
        return try_planted(arguments.build, arguments.planted)
    entries = [entry for source, command in units(arguments.build) for entry in parse(report_of(command, source))]
    if not entries:
        sys.exit("ptxas has reported no kernel")
    print_table(entries)
    return 1 if any(uses_local_memory(entry) for entry in entries) else 0


if __name__ == "__main__":
    sys.exit(main())
