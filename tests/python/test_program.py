# SPDX-License-Identifier: Apache-2.0
"""`python -m leapquant`: the program, its options and its exit codes."""

import json
import subprocess
import sys

import leapquant
import pytest
from conftest import make_library


def program(*arguments):
    return subprocess.run([sys.executable, "-m", "leapquant", *arguments], capture_output=True, text=True, check=False)


def test_info():
    done = program("info", "--json", "-")
    assert done.returncode == 0
    info = json.loads(done.stdout)
    assert info["version"] == leapquant.__version__
    assert info["backends"][0]["name"] == "cpu"


def test_exit_codes_come_through():
    done = program("verify", "--no-such-option")
    assert done.returncode == 2
    assert "leapquant" in done.stderr


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_verify_and_bench(backend):
    if backend == "cuda":
        make_library("torch-cuda")
    options = ("--backend", backend, "--batch", "1", "--heads", "1", "--json", "-")
    verified = program("verify", *options, "--family", "structured,trained")
    assert verified.returncode == 0, verified.stderr
    timed = program("bench", *options, "--due", "none")
    assert timed.returncode == 0, timed.stderr
    assert json.loads(timed.stdout)["results"]
