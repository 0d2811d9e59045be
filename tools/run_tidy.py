#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the host code of src, cli and bench, several files at a time.

A file that passed is not looked at again until it, a header of the project, its compile command or .clang-tidy changes.
Left out for time, and covered by the compiler's warnings: the tests, which would double it, and the files that compile
themselves once per instruction set.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "clang-tidy"
FOLDERS = ("src", "cli", "bench")
TIDY = "clang-tidy-14"


def digest(*parts):
    state = hashlib.sha256()
    for part in parts:
        state.update(part if isinstance(part, bytes) else part.encode())
        state.update(b"\0")
    return state.hexdigest()


def digest_of_headers():
    headers = [path for folder in ("include", *FOLDERS) for path in sorted((ROOT / folder).rglob("*.h*"))]
    return digest(*(path.read_bytes() for path in (ROOT / ".clang-tidy", *headers)))


def is_looked_at(path):
    inside = path.suffix == ".cc" and any(path.is_relative_to(ROOT / folder) for folder in FOLDERS)
    return inside and "foreach_target.h" not in path.read_text(encoding="utf-8")


def units(build):
    """(file, compile command) of the host code."""
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        if is_looked_at(path := Path(entry["file"])):
            yield path, entry["command"]


def tidy(build, path, stamp):
    """clang-tidy's findings in one file; "" when there are none."""
    if stamp.exists():
        return ""
    done = subprocess.run([TIDY, "--quiet", "-p", build, path], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        stamp.touch()
        return ""
    return done.stdout or done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path, help="a configured build tree")
    build = parser.parse_args().build

    CACHE.mkdir(parents=True, exist_ok=True)
    headers = digest_of_headers()
    jobs = [(path, CACHE / digest(headers, command, path.read_bytes())) for path, command in units(build)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = [text for text in pool.map(lambda job: tidy(build, *job), jobs) if text]
    print(*findings, sep="\n", end="")
    if not jobs:
        sys.exit(f"{build} has no source to look at")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
