# SPDX-License-Identifier: Apache-2.0
"""What a run needs says so: LQ_REQUIRE_GPU=1 and its like make a failure of what would be skipped. Where
LQ_ALLOW_SKIPS is set, a run with a skip has failed unless this expression finds the test's name or the reason.
LQ_RECORD names a file for the judge's figures.
"""

import json
import os
import re
import time
from pathlib import Path

import pytest
from leapquant._arrays import torch
from libraries import NumpyLibrary, TorchLibrary

_figures = []
_notes = []
_skipped = []


def need(there, what, variable):
    if there:
        return
    if os.environ.get(variable, "0") not in ("", "0"):
        pytest.fail(f"{variable} is set, and there is no {what}")
    pytest.skip(f"no {what}")


def need_torch():
    need(torch is not None, "PyTorch", "LQ_REQUIRE_TORCH")


def need_gpu(count=1):
    if torch is None:
        need(False, "GPU: no PyTorch", "LQ_REQUIRE_GPU")
    need(torch.cuda.device_count() >= count, f"{count} GPU(s)", "LQ_REQUIRE_GPU" if count == 1 else "LQ_REQUIRE_GPUS")


def make_library(name):
    if name == "numpy":
        return NumpyLibrary()
    need_torch()
    if name == "torch-cuda":
        need_gpu()
    return TorchLibrary(name.removeprefix("torch-"))


@pytest.fixture(params=["numpy", "torch-cpu", "torch-cuda"])
def library(request):
    return make_library(request.param)


@pytest.fixture(params=["numpy", "torch-cpu"])
def host_library(request):
    return make_library(request.param)


@pytest.fixture
def numpy_library():
    return NumpyLibrary()


@pytest.fixture(params=["cpu", "cuda"])
def torch_library(request):
    return make_library(f"torch-{request.param}")


@pytest.fixture
def cuda_library():
    return make_library("torch-cuda")


@pytest.fixture
def show():
    """Judged figures, by name: a line at the end of the run's output, and of its record."""

    def show(library, **figures):
        _figures.append({"library": library, **figures})
        _notes.append(" ".join(["judge", library, *(f"{name} {value}" for name, value in figures.items())]))

    return show


def write_record(path):
    record = {
        "commit": os.environ.get("LQ_COMMIT"),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "results": _figures,
    }
    Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def pytest_runtest_logreport(report):
    allowed = os.environ.get("LQ_ALLOW_SKIPS")
    if not report.skipped or allowed is None:
        return
    skip = f"{report.nodeid} {report.longrepr[2]}"
    if not (allowed and re.search(allowed, skip)):
        _skipped.append(skip)


def pytest_sessionfinish(session):
    if _figures and torch is not None and "LQ_RECORD" in os.environ:
        write_record(os.environ["LQ_RECORD"])
    if _skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for line in _notes:
        terminalreporter.write_line(line)
    for test in _skipped:
        terminalreporter.write_line(f"skipped, and LQ_ALLOW_SKIPS does not allow it: {test}", red=True)
