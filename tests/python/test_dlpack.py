# SPDX-License-Identifier: Apache-2.0
"""Arrays of libraries that only speak DLPack, well and badly."""

import ctypes
from importlib.util import find_spec

import numpy as np
import pytest
import tvm_ffi
from conftest import make_library, need
from families import FAMILIES, INPUTS
from leapquant import kda
from leapquant._arrays import torch
from libraries import NumpyLibrary
from slots import bits, checkpoint, fill, make_pool


class Foreign:
    """An array that nobody knows: it exports what it was made of, and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Exporter(Foreign):
    """Changes the exported structure before it is handed over."""

    def __init__(self, array, change):
        super().__init__(array)
        self._change = change

    def __dlpack__(self, **options):
        capsule = super().__dlpack__()
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.POINTER(DLTensor), [ctypes.py_object, ctypes.c_char_p]
        self._change(get(capsule, b"dltensor").contents)
        return capsule


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


@pytest.fixture
def inputs(numpy_library):
    return FAMILIES["structured"](numpy_library, 2, 4, 4)


@pytest.fixture
def expected(inputs):
    return [tensor.tobytes() for tensor in kda.run(**inputs)]


def exported(array):
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def run_with(inputs, **changed):
    return [np.asarray(tensor).tobytes() for tensor in kda.run(**{**inputs, **changed})]


def test_every_input_foreign(inputs, expected):
    result = kda.run(**{name: Foreign(exported(array)) for name, array in inputs.items()})
    assert [tensor.tobytes() for tensor in result] == expected


def moved_start(array):
    """The elements of `array` behind one more, which a byte offset leaves out."""
    first = np.ones_like(array[:1])

    def move_start(tensor):
        tensor.byte_offset = first.nbytes
        tensor.shape[0] -= 1

    return Exporter(np.concatenate([first, array]), move_start)


def without_strides(array):
    def drop_strides(tensor):
        tensor.strides = ctypes.POINTER(ctypes.c_int64)()

    return Exporter(array, drop_strides)


@pytest.mark.parametrize("name", INPUTS)
def test_no_strides_means_contiguous(inputs, expected, name):
    assert run_with(inputs, **{name: without_strides(exported(inputs[name]))}) == expected


@pytest.mark.parametrize("name", INPUTS)
def test_byte_offset_counts(inputs, expected, name):
    array = exported(inputs[name])
    assert run_with(inputs, **{name: moved_start(array)}) == expected
    assert run_with(inputs, **{name: Foreign(np.concatenate([array[:1], array])[1:])}) == expected


@pytest.mark.parametrize("export", [Foreign, moved_start, without_strides])
def test_pools_take_foreign_indices_and_bases(numpy_library, inputs, expected, export):
    pool = make_pool(numpy_library, 3, num_heads=4)
    fill(pool, slice(1, None), inputs)
    idx = np.array([2, 1], np.int32)
    pool.check_indices(export(idx))
    kda.flush_inplace(pool, export(idx), export(inputs["q0"]))
    assert bits(numpy_library, checkpoint(pool, slice(1, None))) == expected


def test_jax_arrays(inputs, expected):
    need(find_spec("jax"), "JAX", "LQ_REQUIRE_JAX")
    import jax

    jax.config.update("jax_platforms", "cpu")
    arrays = {name: jax.numpy.asarray(array) for name, array in inputs.items()}
    assert arrays["kbuf"].dtype.name == "bfloat16"
    assert run_with(inputs, **arrays) == expected


def test_cupy_arrays():
    """Of another library's device arrays the stream is unknown; PyTorch takes them over, and orders them."""
    library = make_library("torch-cuda")
    need(find_spec("cupy"), "CuPy", "LQ_REQUIRE_CUPY")
    import cupy

    inputs = FAMILIES["structured"](library, 2, 4, 4)
    pool = make_pool(library, 3, num_heads=4)
    fill(pool, slice(1, None), inputs)
    idx, q0 = cupy.asarray([2, 1], cupy.int32), cupy.asarray(inputs["q0"])
    with pytest.raises(TypeError, match=r"tensor 'idx': on a device, .*torch.from_dlpack"):
        kda.flush_inplace(pool, idx, q0)
    kda.flush_inplace(pool, torch.from_dlpack(idx), torch.from_dlpack(q0))
    assert bits(library, checkpoint(pool, slice(1, None))) == bits(library, kda.run(**inputs))


def test_strides_further_in_are_refused(inputs):
    wide = np.stack([inputs["kbuf"].view(np.uint16)] * 2, -1)[..., 0]
    with pytest.raises(ValueError, match=r"tensor 'kbuf': .* must be contiguous"):
        run_with(inputs, kbuf=Foreign(wide))


def test_consumed_capsule(inputs):
    class Spent(Foreign):
        def __dlpack__(self, **options):
            capsule = super().__dlpack__()
            tvm_ffi.from_dlpack(capsule)
            return capsule

    with pytest.raises(ValueError, match="consumed once"):
        run_with(inputs, w=Spent(inputs["w"]))
    pool = make_pool(NumpyLibrary(), 2, num_heads=4)
    with pytest.raises(ValueError, match="consumed once"):
        kda.flush_inplace(pool, Spent(np.ones(1, np.int32)), inputs["q0"])


def test_bare_capsule_is_no_array(inputs):
    with pytest.raises(TypeError, match="tensor 'w': expected an array, got PyCapsule"):
        run_with(inputs, w=inputs["w"].__dlpack__())


def test_vector_dtypes_and_foreign_devices_are_refused(inputs):
    def two_lanes(tensor):
        tensor.lanes = 2

    def on_gpu(tensor):
        tensor.device_type = 2

    def on_vulkan(tensor):
        tensor.device_type = 7

    with pytest.raises(TypeError, match="tensor 'w': expected int8"):
        run_with(inputs, w=Exporter(inputs["w"], two_lanes))
    for change in (on_gpu, on_vulkan):
        with pytest.raises(TypeError, match="tensor 'w': on a device, expected a PyTorch tensor"):
            run_with(inputs, w=Exporter(inputs["w"], change))


def test_readonly_arrays(inputs, expected):
    for array in inputs.values():
        array.setflags(write=False)
    assert run_with(inputs) == expected


def test_foreign_byte_order(inputs):
    with pytest.raises(TypeError, match="tensor 'w': expected native byte order"):
        run_with(inputs, w=inputs["w"].astype(">f4"))


def test_bit_patterns_stand_for_bfloat16(inputs, expected):
    patterns = {name: inputs[name].view(np.uint16) for name in ("kbuf", "ubuf")}
    assert run_with(inputs, **patterns) == expected
