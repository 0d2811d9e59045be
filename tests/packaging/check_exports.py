# SPDX-License-Identifier: Apache-2.0
"""Checks that a shared library exports what its header declares, all of it versioned, and nothing else."""

import argparse
import re
import subprocess
import sys
from pathlib import Path


def declared(header):
    text = re.sub(r"/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"^LQ_API\b[^;{(]*?\b(\w+)\(", text, flags=re.MULTILINE))


def exported(library):
    """Defined dynamic symbols as {name: version}; the version nodes themselves (absolute symbols) are left out."""
    output = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", library],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    symbols = {}
    for line in output.splitlines():
        _, kind, symbol = line.split(maxsplit=2)
        if kind != "A":
            name, _, version = symbol.partition("@")
            symbols[name] = version.lstrip("@")
    return symbols


def soname(library):
    output = subprocess.run(["objdump", "-p", library], check=True, capture_output=True, text=True).stdout
    return next((line.split()[1] for line in output.splitlines() if line.split()[:1] == ["SONAME"]), None)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("header", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--soname", required=True)
    parser.add_argument("--node", required=True, help="version node of the newest symbols")
    arguments = parser.parse_args()

    functions = declared(arguments.header)
    symbols = exported(arguments.library)
    problems = []
    if not functions:
        problems.append(f"{arguments.header} declares nothing")
    problems += [f"declared but not exported: {name}" for name in sorted(functions - symbols.keys())]
    problems += [f"exported but not declared: {name}" for name in sorted(symbols.keys() - functions)]
    problems += [f"without a version: {name}" for name, version in sorted(symbols.items()) if not version]
    if arguments.node not in symbols.values():
        problems.append(f"no symbol of {arguments.node}")
    if (found := soname(arguments.library)) != arguments.soname:
        problems.append(f"SONAME is {found}, expected {arguments.soname}")
    print(*problems or [f"{len(functions)} functions"], sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
