#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs the Python package with its tests, for a machine with a GPU and without a network or a compiler.

    .venv/bin/python tools/pack_python_tests.py FOLDER BUILD... [--python 3.12]

BUILD is a build tree configured with -DLQ_BUILD_PYTHON=ON. The wheel is built in the first one; every one adds its
variant of the kernel hub's layout. The machine has PyTorch, numpy, ml_dtypes, pytest and hypothesis for that version of
Python. There, `bash FOLDER/run` installs the wheel in a fresh virtual environment, runs every test, the example and the
comparison with PyTorch, and takes a missing GPU or a test that was skipped for a failure. Options go to pytest; OUT is
the folder for the records.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = (
    "tests/packaging/check_floor.py",
    "tests/python",
    "examples",
    "data/definitions",
    "bench/compare_torch.py",
    "docs/python.md",
    "README.md",
    "pyproject.toml",
)

RUN = """#!/usr/bin/env bash
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
machine=${PYTHON:-python3} records=${OUT:-.} failed=()
venv=$(mktemp -d)/venv
purelib='import sysconfig; print(sysconfig.get_path("purelib"))'
seen="import site; site.addsitedir('$("$machine" -c "$purelib")')"

step() {
  printf '==> %s (after %d s)\\n' "$1" $SECONDS
  "${@:2}" || failed+=("$1")
}

install() {
  # What the machine has is seen in the new environment, also where its Python is of a virtual environment itself.
  "$machine" -m venv --without-pip --system-site-packages "$venv" &&
    printf '%s\\n' "$seen" >"$("$venv/bin/python" -c "$purelib")/zz_machine.pth" &&
    "$machine" -m pip --python "$venv/bin/python" install --quiet --no-index --no-deps --ignore-installed \\
      wheels/*.whl hub_wheels/*.whl &&
    "$venv/bin/python" -c 'import leapquant, torch; print(leapquant.__file__, "torch", torch.__version__)'
}

export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 LQ_COMMIT=@commit@ LQ_TEST_HUB=$PWD/hub
export LQ_REQUIRE_GPU=1 LQ_REQUIRE_TORCH=1 LQ_REQUIRE_SOURCES=1 LQ_REQUIRE_HUB=1
# A second GPU, and tools for what the build machine tests.
export LQ_ALLOW_SKIPS='test_second_device|test_package'
step install install
export LQ_RECORD=$records/python-judge-cuda.json
step tests "$venv/bin/python" -m pytest -p no:cacheprovider --quiet -rs --durations=10 tests/python "$@"
step example "$venv/bin/python" examples/serve_loop.py --device cuda
step comparison "$venv/bin/python" bench/compare_torch.py --device cuda --json "$records/python-compare-cuda.json"
printf '==> done after %d s; failed: %s\\n' $SECONDS "${failed[*]:-nothing}"
((${#failed[@]} == 0))
"""


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout.strip()


def pip(verb, *arguments):
    run(sys.executable, "-m", "pip", verb, "--quiet", "--no-deps", *arguments)


def pinned(file, name):
    lines = (ROOT / "tools" / file).read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.partition("==")[0] == name)


def download(folder, version, *packages):
    """Wheels for the other machine's Python."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 24, 17)]
    pip("download", "--only-binary=:all:", f"--python-version={version}", *platforms, "--dest", folder, *packages)


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
    folder, builds = options.folder.resolve(), [build.resolve() for build in options.builds]

    shutil.rmtree(folder, ignore_errors=True)
    pip("wheel", "--no-build-isolation", "--wheel-dir", folder / "wheels", ".", "-C", f"build-dir={builds[0]}")
    for build in builds:
        run("cmake", "--install", build, "--strip", "--component", "hub", "--prefix", folder / "hub")
    download(folder / "wheels", options.python, pinned("requirements-package.txt", "apache-tvm-ffi"))
    download(folder / "hub_wheels", options.python, "-r", ROOT / "tools/requirements-hub.txt")
    copy_sources(folder)
    commit = run("git", "describe", "--always", "--dirty", "--exclude", "*")
    (folder / "run").write_text(RUN.replace("@commit@", commit), encoding="utf-8")


if __name__ == "__main__":
    main()
