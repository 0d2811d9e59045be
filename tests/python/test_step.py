# SPDX-License-Identifier: Apache-2.0
"""Steps, and what is done to slots: wired to the right tensors, with the library's refusals. On host memory, where
these operations are so far."""

import numpy as np
import pytest
import reference
from conftest import make_library
from families import STEP_INPUTS, WINDOW, draw_step
from leapquant import kda
from leapquant._arrays import torch
from slots import OWN_BYTES, bits, checkpoint, fill, make_pool, own_bits, window

SLOTS, HEADS = 5, 9
TOKEN = ("a", "b", "A_log", "dt_bias")


@pytest.fixture
def library(host_library):
    return host_library


def draw(library):
    return draw_step(library, SLOTS - 1, HEADS, 4)


def indices(library, *values):
    return library.from_numpy(np.array(values, np.int32))


def filled(library, inputs, **options):
    pool = make_pool(library, SLOTS, num_heads=HEADS, **options)
    fill(pool, slice(1, None), inputs)
    return pool


def row(library, inputs):
    """Queries, keys and values of a sequence's heads, one after another."""
    flat = [inputs[name].reshape(inputs[name].shape[0], -1) for name in ("qx", "kx", "vx")]
    return library.xp.concatenate(flat, -1)


def ones_like_output(library, inputs):
    return library.xp.ones_like(inputs["vx"])


def arguments(library, inputs, o):
    return row(library, inputs), *(inputs[name] for name in TOKEN), o


def start_basis(library):
    return library.normal(128, 4)


@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_step_is_the_formula(library, lower_bound):
    inputs = draw(library)
    before = {name: library.bits(array) for name, array in inputs.items()}
    result = kda.step(**inputs, lower_bound=lower_bound)
    assert {name: library.bits(array) for name, array in inputs.items()} == before
    exact = reference.step(library, inputs, "float64", lower_bound)
    for name, array, truth in zip(kda.Step._fields, result, exact, strict=True):
        error = abs(library.cast(array, "float64") - truth)
        half_a_step = 2.0**-8 * abs(truth)
        largest = library.xp.amax(abs(truth), -1)[..., None]
        assert (error <= half_a_step + 1e-4 * largest + 1e-30).all(), name
    assert library.bits(result.w_new) == library.bits(library.cast(exact[4], "float32"))


def test_step_takes_its_arguments_in_the_published_order(library):
    inputs = draw(library)
    by_position = kda.step(*(inputs[name] for name in STEP_INPUTS))
    assert bits(library, by_position) == bits(library, kda.step(**inputs))


@pytest.mark.parametrize("name", STEP_INPUTS)
def test_any_strides(library, name):
    inputs = draw(library)
    expected = bits(library, kda.step(**inputs))
    every_other = library.xp.stack([inputs[name], inputs[name]], -1)[..., 0]
    assert bits(library, kda.step(**{**inputs, name: every_other})) == expected


@pytest.mark.parametrize("name", STEP_INPUTS)
def test_wrong_tensors_are_refused_by_name(library, name):
    inputs = draw(library)
    with pytest.raises(ValueError, match=r"tensor '|supports|geometry|heads"):
        kda.step(**{**inputs, name: inputs[name][..., :-1]})
    with pytest.raises((TypeError, ValueError), match=f"'{name}'"):
        kda.step(**{**inputs, name: library.cast(inputs[name], "float64")})
    with pytest.raises(TypeError, match=f"tensor '{name}': expected an array"):
        kda.step(**{**inputs, name: None})


def test_full_windows_are_refused(library):
    inputs = draw(library)
    inputs["h"][1, 2] = WINDOW
    with pytest.raises(ValueError, match="tensor 'h'"):
        kda.step(**inputs)


@pytest.mark.parametrize("lower_bound", [1.0, float("nan"), float("inf")])
def test_wrong_bounds_are_refused(library, lower_bound):
    with pytest.raises(ValueError, match="lower_bound"):
        kda.step(**draw(library), lower_bound=lower_bound)


@pytest.mark.parametrize("layout", ["padded", "compact"])
@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_step_inplace_appends(library, layout, lower_bound):
    inputs = draw(library)
    pool, o = filled(library, inputs, layout=layout), ones_like_output(library, inputs)
    expected = kda.step(**inputs, lower_bound=lower_bound)
    stepped = arguments(library, inputs, o)
    assert kda.step_inplace(pool, indices(library, 1, 2, 3, 4), *stepped, lower_bound=lower_bound) is None
    assert library.bits(o) == library.bits(expected.o)
    assert library.bits(pool.pcum[1:]) == library.bits(expected.pcum_new)
    assert library.bits(pool.w[1:]) == library.bits(expected.w_new)
    assert (pool.hcnt[1:] == inputs["h"] + 1).all()
    for slot, head in np.ndindex(SLOTS - 1, HEADS):
        entry = int(inputs["h"][slot, head])
        appended = [getattr(pool, name)[1 + slot, head, entry] for name in ("kbuf", "ubuf", "gbuf")]
        assert bits(library, appended) == bits(library, [rows[slot, head] for rows in expected[1:4]])
    assert pool.errors() == {}


def test_rows_without_a_sequence_are_zero(library):
    inputs = draw(library)
    pool, o = filled(library, inputs), ones_like_output(library, inputs)
    before = own_bits(library, pool)
    kda.step_inplace(pool, indices(library, 0, -1, 99, 2**31 - 1), *arguments(library, inputs, o))
    assert not (o != 0).any()
    assert own_bits(library, pool) == before
    assert pool.errors() == {"index": 2}


def test_windows_that_cannot_take_an_entry_are_reported(library):
    inputs = draw(library)
    pool, o = filled(library, inputs), ones_like_output(library, inputs)
    pool.hcnt[2, 3], pool.w[2, 3, WINDOW - 1] = WINDOW, 1
    pool.hcnt[4, 5] = WINDOW + 1
    before = bits(library, [*checkpoint(pool, 2), *window(pool, 2)])
    kda.step_inplace(pool, indices(library, 1, 2, 3, 4), *arguments(library, inputs, o))
    assert pool.errors() == {"unflushed": 1, "counter": 3}
    assert not (o[1, 3] != 0).any() and not (o[3, 5] != 0).any() and (o[1, 2] != 0).any()
    after = bits(library, [*checkpoint(pool, 2), *window(pool, 2)])
    assert after[:5] == before[:5]
    assert (pool.hcnt[2, 3], pool.hcnt[4, 5]) == (WINDOW, WINDOW + 1)


def test_step_and_flush_in_one_call(library):
    inputs = draw(library)
    one, two = (filled(library, inputs) for _ in range(2))
    for pool in (one, two):
        pool.hcnt[1:, ::2] = WINDOW - 1
    outputs = [ones_like_output(library, inputs) for _ in range(2)]
    idx, q0 = indices(library, 4, 0, 2, 3), start_basis(library)
    kda.step_flush_inplace(one, idx, *arguments(library, inputs, outputs[0]), q0)
    kda.step_inplace(two, idx, *arguments(library, inputs, outputs[1]))
    assert (two.hcnt[2, ::2] == WINDOW).all() and (two.w[2, 0, WINDOW - 1] == 1).all()
    kda.flush_inplace(two, idx, q0)
    assert own_bits(library, one) == own_bits(library, two)
    assert library.bits(outputs[0]) == library.bits(outputs[1])
    assert (one.w[2, ::2] == 0).all()


def test_flush_now_takes_any_fill(library):
    inputs, q0 = draw(library), start_basis(library)
    inputs["h"] = library.xp.clip(inputs["h"], 1, WINDOW)
    inputs["w"][..., 0] = 1
    pool = filled(library, inputs)
    untouched = bits(library, checkpoint(pool, 2))
    kda.flush_now(pool, indices(library, 1, 3, 4), q0)
    flushed = {name: inputs[name] for name in STEP_INPUTS[:10]}
    expected = kda.run(**flushed, q0=q0)
    for slot in (1, 3, 4):
        assert bits(library, checkpoint(pool, slot)) == bits(library, [tensor[slot - 1] for tensor in expected])
        assert (pool.hcnt[slot] == 0).all() and (pool.w[slot] == 0).all() and (pool.gbuf[slot] == 1).all()
    assert bits(library, checkpoint(pool, 2)) == untouched


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_reset_slots_are_new_ones(library, layout):
    pool, new = filled(library, draw(library), layout=layout), make_pool(library, SLOTS, num_heads=HEADS, layout=layout)
    before = own_bits(library, pool)
    kda.reset_slots(pool, indices(library, 0, -3))
    assert own_bits(library, pool) == before
    kda.reset_slots(pool, indices(library, 1, 2, 2, 3, 4, 0, 99))
    assert own_bits(library, pool) == own_bits(library, new)
    assert pool.errors() == {"index": 6}


def test_copied_slots_have_the_same_bytes(library):
    pool = filled(library, draw(library))
    kda.copy_slots(pool, indices(library, 1, 1, 0), indices(library, 2, 4, 3))
    for name in (*OWN_BYTES[1:], "codes", "s_k", "s_v", "uq"):
        tensor = getattr(pool, name)
        assert library.bits(tensor[2]) == library.bits(tensor[4]) == library.bits(tensor[1]), name
        assert name == "w" or library.bits(tensor[3]) != library.bits(tensor[1]), name
    for sources, targets in (((1, 2), (3, 3)), ((1, 2), (2, 3))):
        with pytest.raises(ValueError, match="slot"):
            kda.copy_slots(pool, indices(library, *sources), indices(library, *targets))


def test_outputs_that_cannot_be_written_are_refused(library):
    inputs = draw(library)
    pool, o = filled(library, inputs), ones_like_output(library, inputs)
    before = own_bits(library, pool)
    idx = indices(library, 1, 2, 3, 4)
    for wrong in (o[:, ::2], o[:, :, :64], library.cast(o, "float32"), o[:3], inputs["vx"][0]):
        with pytest.raises(ValueError, match="tensor 'o'"):
            kda.step_inplace(pool, idx, *arguments(library, inputs, wrong))
    with pytest.raises(ValueError, match="overlap"):
        kda.step_inplace(pool, idx, *arguments(library, {**inputs, "a": o}, o))
    with pytest.raises(TypeError, match="tensor 'o': expected a PyTorch tensor or a NumPy array"):
        kda.step_inplace(pool, idx, *arguments(library, inputs, o.__dlpack__ if library.name == "numpy" else None))
    assert own_bits(library, pool) == before


def test_wrong_rows_are_refused_by_name(library):
    inputs = draw(library)
    pool, o = filled(library, inputs), ones_like_output(library, inputs)
    given = dict(zip(("mixed", *TOKEN, "o"), arguments(library, inputs, o), strict=True))
    idx = indices(library, 1, 2, 3, 4)
    for name, array in given.items():
        for wrong in (None, library.cast(array, "float64"), array[..., :-1]):
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                kda.step_inplace(pool, idx, **{**given, name: wrong})
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                kda.step_flush_inplace(pool, idx, **{**given, name: wrong}, q0=start_basis(library))


def test_read_only_output_is_refused(numpy_library):
    inputs = draw(numpy_library)
    pool, o = filled(numpy_library, inputs), ones_like_output(numpy_library, inputs)
    o.setflags(write=False)
    with pytest.raises(ValueError, match="tensor 'o': expected a writable array"):
        kda.step_inplace(pool, indices(numpy_library, 1, 2, 3, 4), *arguments(numpy_library, inputs, o))


def test_libraries_agree():
    inputs = draw(numpy := make_library("numpy"))
    library = make_library("torch-cpu")
    tensors = {
        name: library.cast(library.from_numpy(np.asarray(array, np.float32)), array.dtype.name)
        for name, array in inputs.items()
    }
    assert bits(numpy, kda.step(**inputs)) == bits(library, kda.step(**tensors))


# ---- PyTorch's compilers ---------------------------------------------------------------------------------------------


@pytest.fixture
def pytorch():
    return make_library("torch-cpu")


def test_opcheck_step(pytorch):
    inputs = draw(pytorch)
    torch.library.opcheck(torch.ops.leapquant.kda_step.default, (*(inputs[name] for name in STEP_INPUTS), None))


@pytest.mark.parametrize("name", ["step_inplace", "step_flush_inplace", "flush_now", "reset_slots", "copy_slots"])
def test_opcheck_in_place(pytorch, name):
    inputs = draw(pytorch)
    pool, idx, q0 = filled(pytorch, inputs), indices(pytorch, 1, 2, 3, 4), start_basis(pytorch)
    token = (idx, *arguments(pytorch, inputs, ones_like_output(pytorch, inputs)))
    rest = {
        "step_inplace": (*token, -5.0),
        "step_flush_inplace": (*token, q0, None),
        "flush_now": (idx, q0),
        "reset_slots": (idx,),
        "copy_slots": (idx[:2], idx[2:]),
    }[name]
    operation = getattr(torch.ops.leapquant, f"kda_{name}").default
    torch.library.opcheck(operation, (*(getattr(pool, n) for n in OWN_BYTES), *rest, pool.rank, pool.layout))


def test_compiled_serving_loop(pytorch):
    """A step, a flush and what happens to slots, traced as one graph."""
    inputs, q0 = draw(pytorch), start_basis(pytorch)
    eager, traced = (filled(pytorch, inputs) for _ in range(2))
    idx = indices(pytorch, 1, 2, 3, 4)

    def serve(pool, o):
        kda.step_inplace(pool, idx, *arguments(pytorch, inputs, o), lower_bound=-5.0)
        kda.step_flush_inplace(pool, idx, *arguments(pytorch, inputs, o), q0)
        kda.flush_now(pool, idx[:1], q0)
        kda.copy_slots(pool, idx[:1], idx[1:2])
        kda.reset_slots(pool, idx[2:3])
        token = kda.step(**inputs)
        return o + token.o

    expected = serve(eager, ones_like_output(pytorch, inputs))
    compiled = torch.compile(serve, fullgraph=True, backend="aot_eager")
    assert pytorch.bits(compiled(traced, ones_like_output(pytorch, inputs))) == pytorch.bits(expected)
    assert own_bits(pytorch, traced) == own_bits(pytorch, eager)


def test_fake_step(pytorch):
    from torch._subclasses.fake_tensor import FakeTensorMode

    inputs = draw(pytorch)
    with FakeTensorMode() as mode:
        result = kda.step(**{name: mode.from_tensor(tensor) for name, tensor in inputs.items()})
    for fake, real in zip(result, kda.step(**inputs), strict=True):
        assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


def test_a_stepped_window_flushes_as_the_same_window_given(library):
    """Sixteen steps and a flush in place, against `run` on the entries that the functional step returned."""
    inputs, q0 = draw(library), start_basis(library)
    inputs["h"][:] = 0
    inputs["w"][:], inputs["gbuf"][:], inputs["pcum"][:] = 0, 1, 0
    pool, o = filled(library, inputs), ones_like_output(library, inputs)
    idx = indices(library, 1, 2, 3, 4)
    for n in range(WINDOW):
        kda.step_flush_inplace(pool, idx, *arguments(library, inputs, o), q0)
        result = kda.step(**inputs)
        assert library.bits(o) == library.bits(result.o)
        for name, rows in zip(("kbuf", "ubuf", "gbuf"), result[1:4], strict=True):
            inputs[name][:, :, n] = rows
        inputs["w"], inputs["pcum"] = result.w_new, result.pcum_new
        inputs["h"] = inputs["h"] + 1
    expected = kda.run(**{name: inputs[name] for name in STEP_INPUTS[:10]}, q0=q0)
    assert bits(library, checkpoint(pool, slice(1, None))) == bits(library, expected)
