# SPDX-License-Identifier: Apache-2.0
"""`run` against the published criterion: Python's own judge. The program judges more, over further families."""

import json
from pathlib import Path

import pytest
import reference
from conftest import need
from families import FAMILIES
from gates import KDA

from judge import judge

DEFINITION = Path(__file__).parents[2] / "data" / "definitions" / "leapquant_kda_flush_r4_int8_h32_v128_k128.json"


def check(gate, library, family, batch, heads, rank, show):
    inputs = gate.draw(library, batch, heads, rank, family)
    figures = judge(library, inputs, gate.op.run(**inputs))
    show(
        library.name,
        gate=gate.name,
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
def test_keeps_the_bound(gate, library, family, rank, show):
    check(gate, library, family, batch=2, heads=9, rank=rank, show=show)


@pytest.mark.parametrize("batch", [16, 32, 64, 128, 256, 512])
@pytest.mark.parametrize("family", FAMILIES)
def test_published_batches(gate, cuda_library, family, batch, show):
    check(gate, cuda_library, family, batch, heads=32, rank=4, show=show)


def test_judge_notices_a_wrong_code(gate, numpy_library):
    inputs = gate.draw(numpy_library, 1, 9, 4)
    result = gate.op.run(**inputs)
    result.codes[0, 0, 7, :] ^= 4
    assert judge(numpy_library, inputs, result).strict_use > 1


def test_reference_is_the_published_one(torch_library):
    """The shipped definition's own source, on the same tensors: as far from the exact state as ours."""
    need(DEFINITION.exists(), "definition beside the tests", "LQ_REQUIRE_SOURCES")
    namespace = {}
    exec(json.loads(DEFINITION.read_text())["reference"], namespace)
    inputs = KDA.draw(torch_library, 2, 32, 4, "random")
    published = [torch_library.cast(t, "float64") for t in namespace["run"](*(inputs[name] for name in KDA.inputs))]
    ours, state = reference.flush(torch_library, inputs, "float64")
    errors = [
        abs(reference.decode(torch_library.xp, checkpoint) - state).mean((-1, -2)) for checkpoint in (published, ours)
    ]
    assert float(abs(errors[0] / errors[1] - 1).max()) < 1e-3
