# SPDX-License-Identifier: Apache-2.0
"""The functional form: results, strides, dtypes, devices, refusals."""

import numpy as np
import pytest
from conftest import make_library
from families import FAMILIES, INPUTS
from leapquant import kda
from leapquant._arrays import torch
from libraries import NumpyLibrary

PROGRAM_TENSORS = INPUTS[:-1]


def draw(library, batch=2, heads=4, rank=4):
    return FAMILIES["structured"](library, batch, heads, rank)


def bits(library, checkpoint):
    return [library.bits(tensor) for tensor in checkpoint]


def test_inputs_stay(library):
    inputs = draw(library)
    before = {name: library.bits(array) for name, array in inputs.items()}
    result = kda.run(**inputs)
    assert {name: library.bits(array) for name, array in inputs.items()} == before
    assert [tuple(t.shape) for t in result] == [tuple(inputs[name].shape) for name in INPUTS[:5]]
    assert result._fields == INPUTS[:5]


def test_libraries_agree_on_the_cpu():
    inputs = draw(NumpyLibrary())
    library = make_library("torch-cpu")
    tensors = {name: library.from_numpy(np.asarray(a, np.float32)) for name, a in inputs.items()}
    dtypes = ("int8", "float32", "float32", "float16", "float16", "bfloat16", "bfloat16", "float16")
    tensors |= {name: library.cast(tensors[name], dtype) for name, dtype in zip(INPUTS, dtypes, strict=False)}
    assert bits(NumpyLibrary(), kda.run(**inputs)) == bits(library, kda.run(**tensors))


def test_libraries_mix_on_the_cpu():
    """Results are of the library of `codes`."""
    library = make_library("torch-cpu")
    inputs = draw(library)
    expected = bits(library, kda.run(**inputs))
    names = ("codes", "s_v", "u", "w", "q0")
    mixed = kda.run(**{**inputs, **{name: inputs[name].numpy() for name in names}})
    assert bits(NumpyLibrary(), mixed) == expected
    mixed = kda.run(**{**inputs, **{name: inputs[name].numpy() for name in names[1:]}})
    assert bits(library, mixed) == expected


@pytest.mark.parametrize("rank", [1, 2, 4, 8])
@pytest.mark.parametrize("heads", [1, 12])
def test_a_program_depends_on_itself_alone(library, heads, rank):
    inputs = draw(library, batch=3, heads=heads, rank=rank)
    whole = kda.run(**inputs)
    alone = kda.run(**{name: a if name == "q0" else a[2:3] for name, a in inputs.items()})
    assert bits(library, alone) == bits(library, [tensor[2:3] for tensor in whole])


@pytest.mark.parametrize("name", PROGRAM_TENSORS)
def test_any_strides(library, name):
    """Views into something larger, and copies in another order of dimensions: the bits of the plain call."""
    inputs = draw(library)
    expected = bits(library, kda.run(**inputs))
    array, xp = inputs[name], library.xp
    base = xp.concatenate([xp.ones_like(array[:1]), array], 0)
    wide = xp.stack([array, xp.ones_like(array)], 2)
    swapped = xp.swapaxes(xp.swapaxes(array, 0, -1) + xp.zeros_like(xp.swapaxes(array, 0, -1)), 0, -1)
    every_other = xp.stack([array, array], -1)[..., 0]
    backwards = xp.flip(xp.flip(array, (0,)), (0,))
    for view in (base[1:], wide[:, :, 0], swapped, every_other, backwards):
        assert bits(library, kda.run(**{**inputs, name: view})) == expected


def test_strided_start_basis(library):
    inputs = draw(library)
    expected = bits(library, kda.run(**inputs))
    wide = library.xp.stack([inputs["q0"], inputs["q0"]], -1)[..., 0]
    assert bits(library, kda.run(**{**inputs, "q0": wide})) == expected


@pytest.mark.parametrize("name", INPUTS)
def test_wrong_shapes_are_refused_by_name(library, name):
    inputs = draw(library)
    array = inputs[name]
    for wrong in (array[..., :-1], array[None], array[0], array[:0]):
        with pytest.raises(ValueError, match=r"tensor '|supports|geometry|heads"):
            kda.run(**{**inputs, name: wrong})


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "float32", "int8", "float16"])
def test_wrong_dtypes_are_refused_by_name(library, name, dtype):
    inputs = draw(library, batch=1)
    wrong = library.cast(inputs[name], dtype)
    if wrong.dtype == inputs[name].dtype:
        return
    with pytest.raises((TypeError, ValueError), match=f"'{name}'"):
        kda.run(**{**inputs, name: wrong})


@pytest.mark.parametrize("value", [None, 1.0, [1, 2], "text", object()])
def test_what_is_no_array_is_a_type_error(library, value):
    inputs = draw(library, batch=1)
    for name in INPUTS:
        with pytest.raises(TypeError, match=f"tensor '{name}': expected an array"):
            kda.run(**{**inputs, name: value})


def test_batch_of_nothing(library):
    inputs = {name: a if name == "q0" else a[:0] for name, a in draw(library).items()}
    with pytest.raises(ValueError, match=r"tensor 'codes': expected a batch between 1 and .*, got 0"):
        kda.run(**inputs)


def test_foreign_geometry(library):
    inputs = draw(library, rank=4)
    inputs["u"], inputs["q"], inputs["q0"] = inputs["u"][:, :, :3], inputs["q"][:, :, :3], inputs["q0"][:, :3]
    with pytest.raises(ValueError, match="supports rank 1, 2, 4, 8, got 3"):
        kda.run(**inputs)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("codes", lambda a: a[..., :64, :]),  # V
        ("kbuf", lambda a: a[:, :, :8]),  # L
        ("gbuf", lambda a: a[..., :64]),  # K
        ("w", lambda a: a[:, :2]),  # H
        ("q", lambda a: a[:, :, :2]),  # R
        ("pcum", lambda a: a[:1]),  # B
        ("q0", lambda a: a[:, :2]),
    ],
)
def test_tensors_of_another_geometry_are_refused(library, name, wrong):
    inputs = draw(library)
    with pytest.raises(ValueError, match=rf"tensor '{name}': expected .* got"):
        kda.run(**{**inputs, name: wrong(inputs[name])})


def test_nonfinite_values(library):
    inputs = draw(library)
    clean = kda.run(**inputs)
    inputs["pcum"][1, 2, 5] = float("nan")
    with pytest.raises(ValueError, match="tensor 'pcum': expected finite values, got nan at batch 1, head 2"):
        kda.run(**inputs, check_finite=True)
    result = kda.run(**inputs)
    for tensor, other in zip(result, clean, strict=True):
        assert library.bits(tensor[0]) == library.bits(other[0])
        assert library.bits(tensor[1, 3]) == library.bits(other[1, 3])


def test_lazy_negation(torch_library):
    inputs = draw(torch_library)
    expected = bits(torch_library, kda.run(**{**inputs, "q0": -inputs["q0"]}))
    assert bits(torch_library, kda.run(**{**inputs, "q0": torch._neg_view(inputs["q0"])})) == expected


def test_gradients_are_ignored(torch_library):
    inputs = draw(torch_library)
    expected = bits(torch_library, kda.run(**inputs))
    result = kda.run(**{**inputs, "q0": inputs["q0"].requires_grad_()})
    assert bits(torch_library, result) == expected
    assert not result.s_k.requires_grad


def test_sparse_and_meta_tensors_are_refused(torch_library):
    inputs = draw(torch_library)
    for wrong in (inputs["q0"].to_sparse(), inputs["q0"].to("meta")):
        with pytest.raises(TypeError, match="tensor 'q0': expected a strided tensor on cpu or cuda"):
            kda.run(**{**inputs, "q0": wrong})


def test_mixed_devices(cuda_library):
    inputs = draw(cuda_library)
    for name in INPUTS:
        with pytest.raises(ValueError, match=r"on (cuda:0|cpu), got device (cpu|cuda:0)"):
            kda.run(**{**inputs, name: inputs[name].cpu()})


def test_misaligned_tensor_is_right_or_refused(cuda_library):
    inputs = draw(cuda_library)
    flat = torch.empty(inputs["kbuf"].numel() + 1, dtype=torch.bfloat16, device="cuda")
    shifted = flat[1:].view_as(inputs["kbuf"]).copy_(inputs["kbuf"])
    with pytest.raises(ValueError, match="'kbuf' at a multiple of 16 bytes"):
        kda.run(**{**inputs, "kbuf": shifted})
