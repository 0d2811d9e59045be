# SPDX-License-Identifier: Apache-2.0
"""Steps: wired to the right tensors, with the library's refusals."""

import numpy as np
import pytest
import reference
from conftest import make_library
from families import WINDOW, WINDOWS
from gates import GATES
from leapquant._arrays import torch
from slots import bits, checkpoint, fill, indices, own_bits, window

SLOTS, HEADS = 5, 9
TOKEN = ("a", "b", "A_log", "dt_bias")
GATES_AND_INPUTS = [pytest.param(gate, name, id=f"{gate.name}-{name}") for gate in GATES for name in gate.step_inputs]
# The window's tensors by what the functional form returns of them.
ROWS = {"k_row": "kbuf", "u_row": "ubuf", "g_row": "gbuf"}
REPLACED = {"w_new": "w", "pcum_new": "pcum", "p_new": "p"}


def draw(gate, library):
    return gate.draw_step(library, SLOTS - 1, HEADS, 4)


def filled(gate, library, inputs, **options):
    pool = gate.pool(library, SLOTS, **gate.shared(HEADS), **options)
    fill(pool, slice(1, None), inputs)
    return pool


def row(library, inputs):
    """Queries, keys and values of a sequence's heads, one after another."""
    flat = [inputs[name].reshape(inputs[name].shape[0], -1) for name in ("qx", "kx", "vx")]
    return library.xp.concatenate(flat, -1)


def of_window(gate, results):
    """Those of the gate: results with what they become."""
    return [(result, name) for result, name in results.items() if name in WINDOWS[gate.name]]


def ones_like_output(library, inputs):
    return library.xp.ones_like(inputs["vx"])


def arguments(library, inputs, o):
    return row(library, inputs), *(inputs[name] for name in TOKEN), o


def start_basis(library):
    return library.normal(128, 4)


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_step_is_the_formula(gate, library, lower_bound):
    inputs = draw(gate, library)
    before = {name: library.bits(array) for name, array in inputs.items()}
    result = gate.op.step(**inputs, lower_bound=lower_bound)
    assert {name: library.bits(array) for name, array in inputs.items()} == before
    exact = reference.step(library, inputs, "float64", lower_bound)
    for name, array, truth in zip(gate.op.Step._fields, result, exact, strict=True):
        error = abs(library.cast(array, "float64") - truth)
        half_a_step = 2.0**-8 * abs(truth)
        largest = library.xp.amax(abs(truth), -1)[..., None]
        assert (error <= half_a_step + 1e-4 * largest + 1e-30).all(), name
    if gate.name == "kda":
        assert library.bits(result.w_new) == library.bits(library.cast(exact[4], "float32"))


def test_step_takes_its_arguments_in_the_published_order(gate, library):
    inputs = draw(gate, library)
    by_position = gate.op.step(*(inputs[name] for name in gate.step_inputs))
    assert bits(library, by_position) == bits(library, gate.op.step(**inputs))


@pytest.mark.parametrize(("gate", "name"), GATES_AND_INPUTS)
def test_any_strides(gate, library, name):
    inputs = draw(gate, library)
    expected = bits(library, gate.op.step(**inputs))
    every_other = library.xp.stack([inputs[name], inputs[name]], -1)[..., 0]
    assert bits(library, gate.op.step(**{**inputs, name: every_other})) == expected


@pytest.mark.parametrize(("gate", "name"), GATES_AND_INPUTS)
def test_wrong_tensors_are_refused_by_name(gate, library, name):
    inputs = draw(gate, library)
    with pytest.raises(ValueError, match=r"tensor '|supports|geometry|heads"):
        gate.op.step(**{**inputs, name: inputs[name][..., :-1]})
    with pytest.raises((TypeError, ValueError), match=f"'{name}'"):
        gate.op.step(**{**inputs, name: library.cast(inputs[name], "float64")})
    with pytest.raises(TypeError, match=f"tensor '{name}': expected an array"):
        gate.op.step(**{**inputs, name: None})


def test_full_windows_are_refused(gate, library):
    """On the host by name; on a device, where nobody waits for the values, the program's results are NaN."""
    inputs = draw(gate, library)
    inputs["h"][1, 2] = WINDOW
    if library.device == "cuda":
        unknown = library.xp.isnan(library.cast(gate.op.step(**inputs).o, "float32"))
        assert unknown[1, 2].all()
        assert unknown.sum() == 128
        return
    with pytest.raises(ValueError, match="tensor 'h'"):
        gate.op.step(**inputs)


@pytest.mark.parametrize("lower_bound", [1.0, float("nan"), float("inf")])
def test_wrong_bounds_are_refused(gate, library, lower_bound):
    with pytest.raises(ValueError, match="lower_bound"):
        gate.op.step(**draw(gate, library), lower_bound=lower_bound)


@pytest.mark.parametrize("layout", ["padded", "compact"])
@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_step_inplace_appends(gate, library, layout, lower_bound):
    inputs = draw(gate, library)
    pool, o = filled(gate, library, inputs, layout=layout), ones_like_output(library, inputs)
    expected = gate.op.step(**inputs, lower_bound=lower_bound)
    stepped = arguments(library, inputs, o)
    assert gate.op.step_inplace(pool, indices(library, 1, 2, 3, 4), *stepped, lower_bound=lower_bound) is None
    assert library.bits(o) == library.bits(expected.o)
    for result, name in of_window(gate, REPLACED):
        assert library.bits(getattr(pool, name)[1:]) == library.bits(getattr(expected, result))
    assert (pool.hcnt[1:] == inputs["h"] + 1).all()
    for slot, head in np.ndindex(SLOTS - 1, HEADS):
        entry = int(inputs["h"][slot, head])
        for result, name in of_window(gate, ROWS):
            appended = getattr(pool, name)[1 + slot, head, entry]
            assert library.bits(appended) == library.bits(getattr(expected, result)[slot, head])
    assert pool.errors() == {}


def test_rows_without_a_sequence_are_zero(gate, library):
    inputs = draw(gate, library)
    pool, o = filled(gate, library, inputs), ones_like_output(library, inputs)
    before = own_bits(library, pool)
    gate.op.step_inplace(pool, indices(library, 0, -1, 99, 2**31 - 1), *arguments(library, inputs, o))
    assert not (o != 0).any()
    assert own_bits(library, pool) == before
    assert pool.errors() == {"index": 2}


def test_windows_that_cannot_take_an_entry_are_reported(gate, library):
    inputs = draw(gate, library)
    pool, o = filled(gate, library, inputs), ones_like_output(library, inputs)
    pool.hcnt[2, 3], pool.w[2, 3, WINDOW - 1] = WINDOW, 1
    pool.hcnt[4, 5] = WINDOW + 1
    before = bits(library, [*checkpoint(pool, 2), *window(pool, 2)])
    gate.op.step_inplace(pool, indices(library, 1, 2, 3, 4), *arguments(library, inputs, o))
    assert pool.errors() == {"unflushed": 1, "counter": 3}
    assert not (o[1, 3] != 0).any() and not (o[3, 5] != 0).any() and (o[1, 2] != 0).any()
    after = bits(library, [*checkpoint(pool, 2), *window(pool, 2)])
    assert after[:5] == before[:5]
    assert (pool.hcnt[2, 3], pool.hcnt[4, 5]) == (WINDOW, WINDOW + 1)


def test_step_and_flush_in_one_call(gate, library):
    inputs = draw(gate, library)
    one, two = (filled(gate, library, inputs) for _ in range(2))
    for pool in (one, two):
        pool.hcnt[1:, ::2] = WINDOW - 1
    outputs = [ones_like_output(library, inputs) for _ in range(2)]
    idx, q0 = indices(library, 4, 0, 2, 3), start_basis(library)
    gate.op.step_flush_inplace(one, idx, *arguments(library, inputs, outputs[0]), q0)
    gate.op.step_inplace(two, idx, *arguments(library, inputs, outputs[1]))
    assert (two.hcnt[2, ::2] == WINDOW).all() and (two.w[2, 0, WINDOW - 1] == 1).all()
    gate.op.flush_inplace(two, idx, q0)
    assert own_bits(library, one) == own_bits(library, two)
    assert library.bits(outputs[0]) == library.bits(outputs[1])
    assert (one.w[2, ::2] == 0).all()


def test_outputs_that_cannot_be_written_are_refused(gate, library):
    inputs = draw(gate, library)
    pool, o = filled(gate, library, inputs), ones_like_output(library, inputs)
    before = own_bits(library, pool)
    idx = indices(library, 1, 2, 3, 4)
    for wrong in (o[:, ::2], o[:, :, :64], library.cast(o, "float32"), o[:3], inputs["vx"][0]):
        with pytest.raises(ValueError, match="tensor 'o'"):
            gate.op.step_inplace(pool, idx, *arguments(library, inputs, wrong))
    with pytest.raises(ValueError, match="overlap"):
        gate.op.step_inplace(pool, idx, *arguments(library, {**inputs, "b": o[..., 0]}, o))
    with pytest.raises(TypeError, match="tensor 'o': expected a PyTorch tensor or a NumPy array"):
        gate.op.step_inplace(pool, idx, *arguments(library, inputs, o.__dlpack__ if library.name == "numpy" else None))
    assert own_bits(library, pool) == before


def test_wrong_rows_are_refused_by_name(gate, library):
    inputs = draw(gate, library)
    pool, o = filled(gate, library, inputs), ones_like_output(library, inputs)
    given = dict(zip(("mixed", *TOKEN, "o"), arguments(library, inputs, o), strict=True))
    idx = indices(library, 1, 2, 3, 4)
    for name, array in given.items():
        for wrong in (None, library.cast(array, "float64"), array[..., :-1]):
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                gate.op.step_inplace(pool, idx, **{**given, name: wrong})
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                gate.op.step_flush_inplace(pool, idx, **{**given, name: wrong}, q0=start_basis(library))


def test_read_only_output_is_refused(gate, numpy_library):
    inputs = draw(gate, numpy_library)
    pool, o = filled(gate, numpy_library, inputs), ones_like_output(numpy_library, inputs)
    o.setflags(write=False)
    with pytest.raises(ValueError, match="tensor 'o': expected a writable array"):
        gate.op.step_inplace(pool, indices(numpy_library, 1, 2, 3, 4), *arguments(numpy_library, inputs, o))


def test_libraries_agree(gate):
    inputs = draw(gate, numpy := make_library("numpy"))
    library = make_library("torch-cpu")
    tensors = {
        name: library.cast(library.from_numpy(np.asarray(array, np.float32)), array.dtype.name)
        for name, array in inputs.items()
    }
    assert bits(numpy, gate.op.step(**inputs)) == bits(library, gate.op.step(**tensors))


# ---- PyTorch's compilers ---------------------------------------------------------------------------------------------


def test_opcheck_step(gate, torch_library):
    inputs = draw(gate, torch_library)
    torch.library.opcheck(gate.operation("step"), (*(inputs[name] for name in gate.step_inputs), None))


@pytest.mark.parametrize("name", ["step_inplace", "step_flush_inplace"])
def test_opcheck_in_place(gate, torch_library, name):
    inputs = draw(gate, torch_library)
    pool, idx, q0 = filled(gate, torch_library, inputs), indices(torch_library, 1, 2, 3, 4), start_basis(torch_library)
    token = (idx, *arguments(torch_library, inputs, ones_like_output(torch_library, inputs)))
    rest = {
        "step_inplace": (*token, -5.0),
        "step_flush_inplace": (*token, q0, None),
    }[name]
    torch.library.opcheck(gate.operation(name), gate.operands(pool, *rest))


def test_compiled_serving_loop(gate, torch_library):
    """A step, a flush and what happens to slots, traced as one graph."""
    inputs, q0 = draw(gate, torch_library), start_basis(torch_library)
    eager, traced = (filled(gate, torch_library, inputs) for _ in range(2))
    idx = indices(torch_library, 1, 2, 3, 4)

    def serve(pool, o):
        gate.op.step_inplace(pool, idx, *arguments(torch_library, inputs, o), lower_bound=-5.0)
        gate.op.step_flush_inplace(pool, idx, *arguments(torch_library, inputs, o), q0)
        gate.op.flush_now(pool, idx[:1], q0)
        gate.op.copy_slots(pool, idx[:1], idx[1:2])
        gate.op.reset_slots(pool, idx[2:3])
        token = gate.op.step(**inputs)
        return o + token.o

    expected = serve(eager, ones_like_output(torch_library, inputs))
    compiled = torch.compile(serve, fullgraph=True, backend="aot_eager")
    assert torch_library.bits(compiled(traced, ones_like_output(torch_library, inputs))) == torch_library.bits(expected)
    assert own_bits(torch_library, traced) == own_bits(torch_library, eager)


def test_fake_step(gate, torch_library):
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = draw(gate, torch_library)
    with FakeTensorMode() as mode:
        result = gate.op.step(**{name: mode.from_tensor(tensor) for name, tensor in inputs.items()})
    for fake, real in zip(result, gate.op.step(**inputs), strict=True):
        assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


def test_a_stepped_window_flushes_as_the_same_window_given(gate, library):
    """Sixteen steps and a flush in place, against `run` on the entries that the functional step returned."""
    inputs, q0 = draw(gate, library), start_basis(library)
    inputs["h"][:] = 0
    for name, empty in {"w": 0, "gbuf": 1, "pcum": 0, "p": 1}.items():
        if name in inputs:
            inputs[name][:] = empty
    pool, o = filled(gate, library, inputs), ones_like_output(library, inputs)
    idx = indices(library, 1, 2, 3, 4)
    for n in range(WINDOW):
        gate.op.step_flush_inplace(pool, idx, *arguments(library, inputs, o), q0)
        result = gate.op.step(**inputs)
        assert library.bits(o) == library.bits(result.o)
        for row, name in of_window(gate, ROWS):
            inputs[name][:, :, n] = getattr(result, row)
        for new, name in of_window(gate, REPLACED):
            inputs[name] = getattr(result, new)
        inputs["h"] = inputs["h"] + 1
    expected = gate.op.run(**{name: inputs[name] for name in gate.step_inputs[:-8]}, q0=q0)
    assert bits(library, checkpoint(pool, slice(1, None))) == bits(library, expected)
