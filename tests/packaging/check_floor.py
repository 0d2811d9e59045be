# SPDX-License-Identifier: Apache-2.0
"""Checks that what is in a folder or wheel runs with the system libraries of manylinux_2_28.

    check_floor.py PATH...

Of every ELF file: no symbol of a version that is younger than CEILINGS, and no library but ours and SYSTEM_LIBRARIES.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CEILINGS = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (8, 0, 0)}
SYSTEM_LIBRARIES = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "librt.so.1",
    "libstdc++.so.6",
    "libtvm_ffi.so",  # of the Python package apache-tvm-ffi, which is loaded before
}


def objdump(option, file):
    return subprocess.run(["objdump", option, file], check=True, capture_output=True, text=True).stdout


def version_of(text):
    """("GLIBC", (2, 34)) of "GLIBC_2.34"; None where there is no number, as in GLIBC_PRIVATE."""
    name, _, number = text.rpartition("_")
    return name, tuple(map(int, number.split("."))) if re.fullmatch(r"[\d.]+", number) else None


def too_young(file):
    for line in objdump("-T", file).splitlines():
        undefined = re.search(r"\*UND\*\s+[0-9a-f]+\s+\(?(?P<version>\w+_[\w.]+)\)?\s+(?P<symbol>\S+)$", line)
        if not undefined:
            continue
        name, version = version_of(undefined["version"])
        if name in CEILINGS and (version is None or version > CEILINGS[name]):
            yield f"{undefined['symbol']}@{undefined['version']}"


def foreign(file, own):
    for library in re.findall(r"^\s*NEEDED\s+(\S+)$", objdump("-p", file), flags=re.MULTILINE):
        if library not in SYSTEM_LIBRARIES and library not in own:
            yield f"needs {library}"


def check(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    own = {path.name for path in files}
    if not files:
        yield f"{folder}: no ELF file"
    for file in files:
        for problem in (*too_young(file), *foreign(file, own)):
            yield f"{file.relative_to(folder)}: {problem}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    problems = []
    for path in parser.parse_args().paths:
        if path.is_dir():
            problems += check(path)
            continue
        with tempfile.TemporaryDirectory() as folder:
            zipfile.ZipFile(path).extractall(folder)
            problems += check(Path(folder))
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
