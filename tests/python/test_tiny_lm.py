# SPDX-License-Identifier: Apache-2.0
"""examples/tiny_lm: its forward pass is the recorded model's, and leapquant's states cost it next to nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import leapquant
import numpy as np
import pytest
from conftest import make_library, need

EXAMPLE = Path(__file__).parents[2] / "examples" / "tiny_lm"
RECORDED = Path(leapquant.__file__).parent / "data" / "kda_trajectory.safetensors"  # data/README.md
BYTES = 512  # of each of the two held-out sequences


def run(*arguments):
    need(EXAMPLE.exists(), "examples beside the tests", "LQ_REQUIRE_SOURCES")
    command = [sys.executable, EXAMPLE, *map(str, arguments)]
    # As small as it is, threads that wait for one another take longer than one.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("library", ["numpy", "torch-cpu", "torch-cuda"])
def test_score(library, tmp_path):
    make_library(library)
    device = [] if library == "numpy" else ["--device", library.removeprefix("torch-")]
    done = run("score", "--bytes", BYTES, "--json", tmp_path / "record.json", *device)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    scores = {result["states"]: result for result in record["results"]}

    kl = {name: score["kl"] for name, score in scores.items()}
    assert kl["fp32"] == 0 < kl["leapquant"] <= 0.0003
    assert kl["leapquant"] < kl["bf16"] < kl["int8"]
    bits = {name: score["bits_per_byte"] for name, score in scores.items()}
    assert 1 < bits["fp32"] < 2.5
    # Five standard errors of the difference over so few bytes, for the KL that is allowed.
    assert abs(bits["leapquant"] - bits["fp32"]) <= 5 * (2 * 0.0003 / (2 * BYTES)) ** 0.5 / np.log(2)

    programs = 4 * 2  # layers, heads
    per_program = {
        "fp32": 4 * 128 * 128,
        "leapquant": 19456 + 12868,
        "bf16": 2 * 128 * 128,
        "int8": 128 * 128 + 4 * 128,
    }
    assert {name: score["bytes"] for name, score in scores.items()} == {
        name: programs * size for name, size in per_program.items()
    }


def test_check_refuses_what_costs_too_much(tmp_path):
    text = tmp_path / "noise"
    text.write_bytes(np.random.default_rng(1).integers(0, 256, 80, np.uint8).tobytes())
    done = run("score", "--check", "--text", text)
    assert done.returncode == 1
    assert "bits per byte away" in done.stderr


@pytest.mark.parametrize("arguments", [("score", "--bytes", 1), ("score", "--sequences", 0), ("write", "--bytes", 0)])
def test_numbers_that_make_no_sense_are_refused(arguments):
    done = run(*arguments)
    assert done.returncode == 2
    assert "expected at least" in done.stderr


@pytest.mark.parametrize("states", ["leapquant", "int8"])
def test_write(states):
    first, second = (run("write", "--prompt", "import o", "--bytes", "40", "--states", states) for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout.startswith("import o")
    assert len(first.stdout.encode()) >= len("import o") + 40
    assert first.stdout == second.stdout


@pytest.fixture
def example(monkeypatch):
    """Makes the example's modules importable."""
    need(EXAMPLE.exists(), "examples beside the tests", "LQ_REQUIRE_SOURCES")
    monkeypatch.syspath_prepend(str(EXAMPLE))


def test_numpy_rounds_to_bf16_half_to_even(example):
    from arrays import NumpyArrays

    step = 2.0**-7  # between the bfloat16 numbers from 1 on
    values = np.float32([1, 1 + 0.5 * step, 1 + 0.51 * step, 1 + 1.5 * step, -1 - 1.5 * step, 2 - 0.25 * step, 0])
    rounded = np.float32([1, 1, 1 + step, 1 + 2 * step, -1 - 2 * step, 2, 0])
    arrays = NumpyArrays()
    assert (arrays.to_fp32(arrays.to_bf16(values)) == rounded).all()


@pytest.mark.parametrize("library", ["numpy", "torch-cpu", "torch-cuda"])
def test_int8_states_are_within_half_a_step(example, library):
    from arrays import make_arrays
    from model import Model
    from states import Int8States

    make_library(library)
    arrays = make_arrays(None if library == "numpy" else library.removeprefix("torch-"))
    store = Int8States(Model(EXAMPLE / "tiny_kda_lm.safetensors", arrays), 1)
    state = np.random.default_rng(1).standard_normal((1, 2, 128, 128), np.float32)
    state[0, 0, 5] = 0
    decoded = arrays.to_numpy(store.decode(*store.encode(arrays.array(state))))
    step = abs(state).max(-1, keepdims=True) / 127
    assert (abs(decoded - state) <= 0.501 * step).all()
    assert len(np.unique(decoded[0, 1, 0])) > 64


def test_forward_pass_is_the_recorded_one(example):
    from arrays import NumpyArrays, read_safetensors
    from model import Decoder, Model
    from states import DenseStates

    class Recorder(DenseStates):
        seen = ([], [], [], [])

        def step(self, layer, mixed, a, b):
            rows = (self.arrays.to_fp32(array).reshape(2, -1) for array in (mixed, a, b))
            self.seen[layer].append(np.concatenate(list(rows), -1))
            return super().step(layer, mixed, a, b)

    tokens = 100
    text = np.frombuffer((EXAMPLE / "heldout.txt").read_bytes(), np.uint8).reshape(2, -1)
    model = Model(EXAMPLE / "tiny_kda_lm.safetensors", NumpyArrays())
    decoder = Decoder(model, Recorder(model, 2), 2)
    for byte in text[:, :tokens].T:
        decoder.forward(byte)

    recorded = read_safetensors(RECORDED)
    for layer in (1, 3):
        expected = [recorded[f"layer{layer}.{name}"][:, :tokens].reshape(2, tokens, -1) for name in "qkvab"]
        expected, seen = np.concatenate(expected, -1), np.stack(Recorder.seen[layer], 1)
        # The record's model computed in bfloat16 in places.
        assert abs(seen - expected).mean() <= 0.01 * abs(expected).mean()
