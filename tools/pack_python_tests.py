#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the Python package of a build with its tests, for a machine with a GPU and without a network or a compiler.

    .venv/bin/python tools/pack_python_tests.py FOLDER BUILD... [--python 3.12]

BUILD is a build tree configured with -DLQ_BUILD_PYTHON=ON. The package is the first one's; every one adds its variant
of the kernel hub's layout. The machine has PyTorch, numpy, pytest and hypothesis for that version of Python. There,
`bash FOLDER/run` runs every test, and takes a missing GPU for a failure; options go to pytest.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "tests/python",
    "examples",
    "data/definitions",
    "bench/compare_torch.py",
    "docs/python.md",
    "README.md",
    "pyproject.toml",
)
PACKAGES = ("apache-tvm-ffi", "ml_dtypes")  # of tools/requirements-package.txt; the rest is there

RUN = """#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export PYTHONPATH=$PWD/package:$PWD/site${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
export LQ_REQUIRE_GPU=1 LQ_REQUIRE_TORCH=1 LQ_REQUIRE_SOURCES=1 LQ_TEST_HUB=$PWD/hub HF_HUB_OFFLINE=1
exec "${PYTHON:-python3}" -m pytest -p no:cacheprovider -rs tests/python "$@"
"""


def pinned(file, names=None):
    lines = (ROOT / "tools" / file).read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [line for line in wanted if names is None or line.partition("==")[0] in names]


def install(build, component, folder):
    command = ["cmake", "--install", build, "--strip", "--component", component, "--prefix", folder]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def download(folder, version):
    """Wheels for the other machine's Python, unpacked. Their requirements are in the lists, or on that machine."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 24, 17)]
    options = ["--quiet", "--no-deps", "--no-compile", "--only-binary=:all:", f"--python-version={version}", *platforms]
    packages = pinned("requirements-package.txt", PACKAGES) + pinned("requirements-hub.txt")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", folder, *packages], check=True)


def copy_sources(folder):
    for source in SOURCES:
        target = folder / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / source, target)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("builds", type=Path, nargs="+", metavar="build")
    parser.add_argument("--python", default="3.12", help="the other machine's version of Python (default: 3.12)")
    options = parser.parse_args()

    shutil.rmtree(options.folder, ignore_errors=True)
    install(options.builds[0], "python", options.folder / "package")
    for build in options.builds:
        install(build, "hub", options.folder / "hub")
    download(options.folder / "site", options.python)
    copy_sources(options.folder)
    (options.folder / "run").write_text(RUN, encoding="utf-8")


if __name__ == "__main__":
    main()
