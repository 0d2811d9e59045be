# SPDX-License-Identifier: Apache-2.0
"""The worked example and the documents' code run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import make_library, need

ROOT = Path(__file__).parents[2]
SERVE_LOOP = ROOT / "examples" / "serve_loop.py"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_serve_loop(device):
    make_library(f"torch-{device}")
    need(SERVE_LOOP.exists(), "examples beside the tests", "LQ_REQUIRE_SOURCES")
    command = [sys.executable, SERVE_LOOP, "--device", device, "--tokens", "60"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.match(r"(\d+) flushes in 60 tokens", done.stdout).group(1)) > 20


@pytest.mark.parametrize("document", ["README.md", "docs/python.md"])
def test_code_of_the_documents(document):
    make_library("torch-cpu")
    path = ROOT / document
    need(path.exists(), "documents beside the tests", "LQ_REQUIRE_SOURCES")
    blocks = re.findall(r"^```python\n(.*?)^```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})
