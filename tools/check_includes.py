#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom, the rules of docs/design.md.

Prints one line per breach, `file:line: what is wrong`, and exits 1 when there is any.
"""

import argparse
import re
import sys
from pathlib import Path

PUBLIC = "leapquant"  # include/leapquant

# What a folder may include, itself aside. Folders of the tests are free.
ALLOWED = {
    "include/leapquant": set(),
    "src/core": set(),
    "src/plan": {"core"},
    "src/pool": {"core", "plan"},
    "src/ref": {"core", "plan"},
    "src/cpu": {"core", "plan"},
    "src/cuda": {"core", "plan"},
    "src/api": {"core", "plan", "pool", PUBLIC},
    "src/io": {"core"},
    "src/device": {PUBLIC},
    "src/judge": {"core", "ref", "io", "device", PUBLIC},
    "cli": {"judge", "io", "device", "bench", PUBLIC},
    "bench": {"judge", "io", "device", PUBLIC},
    "python/module": {PUBLIC},
}

# Libraries that only the named folders may include, by the first part of the header's path. All else in angle brackets
# is free, but for the folders of STANDARD_ONLY.
RESERVED = {
    "hwy": {"src/cpu", "bench"},
    "cuda_runtime_api.h": {"src/cuda", "src/device", "bench"},
    "CLI": {"cli"},
    "dlpack": {"python/module"},
    "tvm": {"python/module"},
    "nlohmann": {"src/io", "src/judge", "cli", "bench"},
}
STANDARD_ONLY = {"include/leapquant", "src/core", "src/ref"}

SOURCES = {".h", ".hpp", ".c", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(?P<quoted>[^"]+)"|<(?P<angled>[^>]+)>)')
HIGHWAY_SELF = re.compile(r'^\s*#\s*define\s+HWY_TARGET_INCLUDE\s+"(?P<quoted>[^"]+)"')
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def room_of(path):
    """The folder of ALLOWED that a file lies in, or None."""
    return next((room for room in ALLOWED if path.is_relative_to(room)), None)


def name_of(room):
    """How the folder is spelt in an #include."""
    return room.rsplit("/", 1)[-1]


def quoted_breach(room, header):
    target = header.split("/", 1)[0] if "/" in header else name_of(room)
    if target == name_of(room) or target in ALLOWED[room]:
        return None
    if target in RESERVED:
        return angled_breach(room, header)
    allowed = ", ".join(sorted(ALLOWED[room])) or "nothing else"
    return f'{room} may not include "{header}": it sees itself and {allowed}'


def angled_breach(room, header):
    library = header.split("/", 1)[0]
    if library == PUBLIC:
        return quoted_breach(room, header)
    if "/" in header and library != "sys" and room in STANDARD_ONLY:
        return f"{room} includes only the standard library, not <{header}>"
    if library in RESERVED and room not in RESERVED[library]:
        return f"{room} may not include <{header}>: it is for {', '.join(sorted(RESERVED[library]))}"
    return None


def include_breaches(room, text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line) or HIGHWAY_SELF.match(line)
        if not match:
            continue
        quoted = match.group("quoted")
        breach = quoted_breach(room, quoted) if quoted else angled_breach(room, match.group("angled"))
        if breach:
            yield number, breach


def launch_breaches(path, text):
    """Launch syntax outside launch.cu; comments and strings may show it."""
    if path.name == "launch.cu":
        return
    code = COMMENT_OR_STRING.sub(lambda match: "\n" * match.group().count("\n"), text)
    for number, line in enumerate(code.splitlines(), 1):
        if "<<<" in line:
            yield number, "launch syntax belongs in a launch.cu"


def breaches(root):
    """Every breach under `root`, as (path below root, line, text)."""
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        room = room_of(inside)
        if path.suffix not in SOURCES or room is None:
            continue
        text = path.read_text(encoding="utf-8")
        found = [*include_breaches(room, text), *launch_breaches(inside, text)]
        yield from ((inside, number, breach) for number, breach in found)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    found = list(breaches(parser.parse_args().root))
    for path, number, breach in found:
        print(f"{path}:{number}: {breach}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
