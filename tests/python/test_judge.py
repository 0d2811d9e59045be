# SPDX-License-Identifier: Apache-2.0
"""`run` against the published criterion: Python's own judge. The program judges more, over further families."""

import json
from pathlib import Path

import pytest
import reference
from conftest import need
from families import FAMILIES, INPUTS
from leapquant import kda

from judge import judge

DEFINITION = Path(__file__).parents[2] / "data" / "definitions" / "leapquant_kda_flush_r4_int8_h32_v128_k128.json"


def check(library, family, batch, heads, rank, show):
    inputs = FAMILIES[family](library, batch, heads, rank)
    figures = judge(library, inputs, kda.run(**inputs))
    show(
        library.name,
        family=family,
        batch=batch,
        heads=heads,
        rank=rank,
        strict_ratio=round(figures.strict_ratio, 4),
        strict_use=round(figures.strict_use, 4),
        averaged_use=round(figures.averaged_use, 4),
    )
    assert figures.finite
    assert figures.strict_use <= 1
    assert figures.averaged_use <= 1


@pytest.mark.parametrize("rank", [1, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_keeps_the_bound(library, family, rank, show):
    check(library, family, batch=2, heads=9, rank=rank, show=show)


@pytest.mark.parametrize("batch", [16, 32, 64, 128, 256, 512])
@pytest.mark.parametrize("family", FAMILIES)
def test_published_batches(cuda_library, family, batch, show):
    check(cuda_library, family, batch, heads=32, rank=4, show=show)


def test_judge_notices_a_wrong_code(numpy_library):
    inputs = FAMILIES["structured"](numpy_library, 1, 9, 4)
    result = kda.run(**inputs)
    result.codes[0, 0, 7, :] ^= 4
    assert judge(numpy_library, inputs, result).strict_use > 1


def test_reference_is_the_published_one(torch_library):
    """The shipped definition's own source, on the same tensors: as far from the exact state as ours."""
    need(DEFINITION.exists(), "definition beside the tests", "LQ_REQUIRE_SOURCES")
    namespace = {}
    exec(json.loads(DEFINITION.read_text())["reference"], namespace)
    inputs = FAMILIES["random"](torch_library, 2, 32, 4)
    published = [torch_library.cast(t, "float64") for t in namespace["run"](*(inputs[name] for name in INPUTS))]
    ours, state = reference.flush(torch_library, inputs, "float64")
    errors = [
        abs(reference.decode(torch_library.xp, checkpoint) - state).mean((-1, -2)) for checkpoint in (published, ours)
    ]
    assert float(abs(errors[0] / errors[1] - 1).max()) < 1e-3
