# SPDX-License-Identifier: Apache-2.0
"""What a run needs says so: LQ_REQUIRE_GPU=1 and its like make a failure of what would be skipped. Where
LQ_ALLOW_SKIPS is set, a run with any other skip than of a test that this expression finds has failed."""

import os
import re

import pytest
from leapquant._arrays import torch
from libraries import NumpyLibrary, TorchLibrary

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
def note():
    """Lines for the end of the run's output: figures that a reader wants to see."""
    return _notes.append


def pytest_runtest_logreport(report):
    allowed = os.environ.get("LQ_ALLOW_SKIPS")
    if report.skipped and allowed is not None and not (allowed and re.search(allowed, report.nodeid)):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session):
    if _skipped:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter):
    for line in _notes:
        terminalreporter.write_line(line)
    for test in _skipped:
        terminalreporter.write_line(f"skipped, and LQ_ALLOW_SKIPS does not allow it: {test}", red=True)
