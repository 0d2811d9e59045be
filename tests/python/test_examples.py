# SPDX-License-Identifier: Apache-2.0
"""The worked example and the documents' code run."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import make_library, need

ROOT = Path(__file__).parents[2]
SERVE_LOOP = ROOT / "examples" / "serve_loop.py"


@pytest.mark.parametrize("library", ["numpy", "torch-cpu", "torch-cuda"])
def test_serve_loop(library):
    arrays, _, device = library.partition("-")
    make_library(library)
    need(arrays != "numpy" or find_spec("ml_dtypes"), "ml_dtypes", "LQ_REQUIRE_ML_DTYPES")
    need(SERVE_LOOP.exists(), "examples beside the tests", "LQ_REQUIRE_SOURCES")
    command = [sys.executable, SERVE_LOOP, "--device", device or "cpu", "--arrays", arrays, "--tokens", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    flushes, forks = map(int, re.match(r"(\d+) flushes and (\d+) forks in 60 tokens", lines[0]).groups())
    assert flushes > 20 and forks > 0


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_code_of_the_documents(document):
    make_library("torch-cpu")
    path = ROOT / document
    need(path.exists(), "documents beside the tests", "LQ_REQUIRE_SOURCES")
    blocks = re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})
