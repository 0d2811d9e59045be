# SPDX-License-Identifier: Apache-2.0
"""The functional form: results, strides, dtypes, devices, refusals."""

import numpy as np
import pytest
from conftest import make_library
from families import CHECKPOINT
from gates import GDN, gates_and
from leapquant import gdn
from leapquant._arrays import torch
from libraries import NumpyLibrary

from judge import judge


def draw(gate, library, batch=2, heads=4, rank=4):
    return gate.draw(library, batch, heads, rank)


def bits(library, checkpoint):
    return [library.bits(tensor) for tensor in checkpoint]


def test_inputs_stay(gate, library):
    inputs = draw(gate, library)
    before = {name: library.bits(array) for name, array in inputs.items()}
    result = gate.op.run(**inputs)
    assert {name: library.bits(array) for name, array in inputs.items()} == before
    assert [tuple(t.shape) for t in result] == [tuple(inputs[name].shape) for name in CHECKPOINT]
    assert result._fields == CHECKPOINT


def test_libraries_agree_on_the_cpu(gate):
    inputs = draw(gate, NumpyLibrary())
    library = make_library("torch-cpu")
    tensors = {
        name: library.cast(library.from_numpy(np.asarray(array, np.float32)), array.dtype.name)
        for name, array in inputs.items()
    }
    assert bits(NumpyLibrary(), gate.op.run(**inputs)) == bits(library, gate.op.run(**tensors))


def test_libraries_mix_on_the_cpu(gate):
    """Results are of the library of `codes`."""
    library = make_library("torch-cpu")
    inputs = draw(gate, library)
    expected = bits(library, gate.op.run(**inputs))
    names = ("codes", "s_v", "u", "w", "q0")
    mixed = gate.op.run(**{**inputs, **{name: inputs[name].numpy() for name in names}})
    assert bits(NumpyLibrary(), mixed) == expected
    mixed = gate.op.run(**{**inputs, **{name: inputs[name].numpy() for name in names[1:]}})
    assert bits(library, mixed) == expected


@pytest.mark.parametrize("rank", [1, 2, 4, 8])
@pytest.mark.parametrize("heads", [1, 12])
def test_a_program_depends_on_itself_alone(gate, library, heads, rank):
    inputs = draw(gate, library, batch=3, heads=heads, rank=rank)
    whole = gate.op.run(**inputs)
    alone = gate.op.run(**{name: a if name == "q0" else a[2:3] for name, a in inputs.items()})
    assert bits(library, alone) == bits(library, [tensor[2:3] for tensor in whole])


@pytest.mark.parametrize(("gate", "name"), gates_and(but="q0"))
def test_any_strides(gate, library, name):
    """Views into something larger, and copies in another order of dimensions: the bits of the plain call."""
    inputs = draw(gate, library)
    expected = bits(library, gate.op.run(**inputs))
    array, xp = inputs[name], library.xp
    base = xp.concatenate([xp.ones_like(array[:1]), array], 0)
    wide = xp.stack([array, xp.ones_like(array)], 2)
    swapped = xp.swapaxes(xp.swapaxes(array, 0, -1) + xp.zeros_like(xp.swapaxes(array, 0, -1)), 0, -1)
    every_other = xp.stack([array, array], -1)[..., 0]
    backwards = xp.flip(xp.flip(array, (0,)), (0,))
    for view in (base[1:], wide[:, :, 0], swapped, every_other, backwards):
        assert bits(library, gate.op.run(**{**inputs, name: view})) == expected


def test_strided_start_basis(gate, library):
    inputs = draw(gate, library)
    expected = bits(library, gate.op.run(**inputs))
    wide = library.xp.stack([inputs["q0"], inputs["q0"]], -1)[..., 0]
    assert bits(library, gate.op.run(**{**inputs, "q0": wide})) == expected


@pytest.mark.parametrize(("gate", "name"), gates_and())
def test_wrong_shapes_are_refused_by_name(gate, library, name):
    inputs = draw(gate, library)
    array = inputs[name]
    for wrong in (array[..., :-1], array[None], array[0], array[:0]):
        with pytest.raises(ValueError, match=r"tensor '|supports|geometry|heads"):
            gate.op.run(**{**inputs, name: wrong})


@pytest.mark.parametrize(("gate", "name"), gates_and())
@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "float32", "int8", "float16"])
def test_wrong_dtypes_are_refused_by_name(gate, library, name, dtype):
    inputs = draw(gate, library, batch=1)
    wrong = library.cast(inputs[name], dtype)
    if wrong.dtype == inputs[name].dtype:
        return
    with pytest.raises((TypeError, ValueError), match=f"'{name}'"):
        gate.op.run(**{**inputs, name: wrong})


@pytest.mark.parametrize("value", [None, 1.0, [1, 2], "text", object()])
def test_what_is_no_array_is_a_type_error(gate, library, value):
    inputs = draw(gate, library, batch=1)
    for name in gate.inputs:
        with pytest.raises(TypeError, match=f"tensor '{name}': expected an array"):
            gate.op.run(**{**inputs, name: value})


def test_batch_of_nothing(gate, library):
    inputs = {name: a if name == "q0" else a[:0] for name, a in draw(gate, library).items()}
    with pytest.raises(ValueError, match=r"tensor 'codes': expected a batch between 1 and .*, got 0"):
        gate.op.run(**inputs)


def test_foreign_geometry(gate, library):
    inputs = draw(gate, library, rank=4)
    inputs["u"], inputs["q"], inputs["q0"] = inputs["u"][:, :, :3], inputs["q"][:, :, :3], inputs["q0"][:, :3]
    with pytest.raises(ValueError, match="supports rank 1, 2, 4, 8, got 3"):
        gate.op.run(**inputs)


OTHER_GEOMETRIES = {
    "codes": lambda a: a[..., :64, :],  # V
    "kbuf": lambda a: a[:, :, :8],  # L
    "gbuf": lambda a: a[..., :64],  # K
    "w": lambda a: a[:, :2],  # H
    "q": lambda a: a[:, :, :2],  # R
    "pcum": lambda a: a[:1],  # B
    "p": lambda a: a[:1],  # B
    "q0": lambda a: a[:, :2],
}


@pytest.mark.parametrize(("gate", "name"), gates_and(*OTHER_GEOMETRIES))
def test_tensors_of_another_geometry_are_refused(gate, library, name):
    inputs = draw(gate, library)
    with pytest.raises(ValueError, match=rf"tensor '{name}': expected .* got"):
        gate.op.run(**{**inputs, name: OTHER_GEOMETRIES[name](inputs[name])})


def test_p_as_pools_have_it(library):
    """[B, H, 1], the published shape there; strided too. A longer dimension is none."""
    inputs = draw(GDN, library)
    expected = bits(library, gdn.run(**inputs))
    wide = library.xp.stack([inputs["p"], inputs["p"]], -1)
    for p in (inputs["p"][..., None], wide[..., :1], wide[..., 0]):
        assert bits(library, gdn.run(**{**inputs, "p": p})) == expected
    for wrong in (wide, wide[..., :0], inputs["p"][..., None, None]):
        with pytest.raises(ValueError, match=r"tensor 'p': expected float32 \[2, 4\]"):
            gdn.run(**{**inputs, "p": wrong})


def test_arguments_in_the_published_order(gate, library):
    inputs = draw(gate, library)
    by_position = gate.op.run(*(inputs[name] for name in gate.inputs))
    assert bits(library, by_position) == bits(library, gate.op.run(**inputs))


@pytest.mark.parametrize("p", [0.0, 2e-41, 1.0])
def test_any_decay_is_an_ordinary_value(library, p):
    """A state that the window leaves alone is p times the checkpoint's."""
    inputs = draw(GDN, library)
    inputs["w"][:], inputs["p"][:] = 0, p
    figures = judge(library, inputs, gdn.run(**inputs))
    assert figures.finite and figures.strict_use <= 1


def test_nonfinite_values(gate, library):
    inputs = draw(gate, library)
    clean = gate.op.run(**inputs)
    decay = gate.inputs[-2]
    inputs[decay][1, 2] = float("nan")
    with pytest.raises(ValueError, match=f"tensor '{decay}': expected finite values, got nan at batch 1, head 2"):
        gate.op.run(**inputs, check_finite=True)
    result = gate.op.run(**inputs)
    for tensor, other in zip(result, clean, strict=True):
        assert library.bits(tensor[0]) == library.bits(other[0])
        assert library.bits(tensor[1, 3]) == library.bits(other[1, 3])


def test_lazy_negation(gate, torch_library):
    inputs = draw(gate, torch_library)
    expected = bits(torch_library, gate.op.run(**{**inputs, "q0": -inputs["q0"]}))
    assert bits(torch_library, gate.op.run(**{**inputs, "q0": torch._neg_view(inputs["q0"])})) == expected


def test_gradients_are_ignored(gate, torch_library):
    inputs = draw(gate, torch_library)
    expected = bits(torch_library, gate.op.run(**inputs))
    result = gate.op.run(**{**inputs, "q0": inputs["q0"].requires_grad_()})
    assert bits(torch_library, result) == expected
    assert not result.s_k.requires_grad


def test_sparse_and_meta_tensors_are_refused(gate, torch_library):
    inputs = draw(gate, torch_library)
    for wrong in (inputs["q0"].to_sparse(), inputs["q0"].to("meta")):
        with pytest.raises(TypeError, match="tensor 'q0': expected a strided tensor on cpu or cuda"):
            gate.op.run(**{**inputs, "q0": wrong})


def test_mixed_devices(gate, cuda_library):
    inputs = draw(gate, cuda_library)
    for name in gate.inputs:
        with pytest.raises(ValueError, match=r"on (cuda:0|cpu), got device (cpu|cuda:0)"):
            gate.op.run(**{**inputs, name: inputs[name].cpu()})


def test_misaligned_tensor_is_right_or_refused(gate, cuda_library):
    inputs = draw(gate, cuda_library)
    flat = torch.empty(inputs["kbuf"].numel() + 1, dtype=torch.bfloat16, device="cuda")
    shifted = flat[1:].view_as(inputs["kbuf"]).copy_(inputs["kbuf"])
    with pytest.raises(ValueError, match="'kbuf' at a multiple of 16 bytes"):
        gate.op.run(**{**inputs, "kbuf": shifted})
