# SPDX-License-Identifier: Apache-2.0
"""The worked example runs, and its own check is satisfied."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make_library, need

SERVE_LOOP = Path(__file__).parents[2] / "examples" / "serve_loop.py"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_serve_loop(device):
    make_library(f"torch-{device}")
    need(SERVE_LOOP.exists(), "examples beside the tests", "LQ_REQUIRE_SOURCES")
    command = [sys.executable, SERVE_LOOP, "--device", device, "--tokens", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.match(r"(\d+) flushes in 60 tokens", done.stdout).group(1)) > 20
