# SPDX-License-Identifier: Apache-2.0
"""What the package asks of an array library: new arrays, and views into a flat one."""

import math

import numpy as np
import tvm_ffi

try:
    import torch
except ImportError:
    torch = None

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:  # bit patterns then
    _bfloat16 = np.uint16


class NumpyArrays:
    """NumPy, on the CPU. bfloat16 is ml_dtypes' where that is installed, and uint16 bit patterns elsewhere."""

    def __init__(self, device="cpu"):
        if str(device) != "cpu":
            raise ValueError(f"device: NumPy arrays live on 'cpu', got '{device}'")
        self.device = "cpu"

    def dtype(self, name):
        return np.dtype(_bfloat16 if name == "bfloat16" else name)

    def empty(self, shape, dtype):
        return np.empty(shape, self.dtype(dtype))

    def full(self, shape, dtype, value):
        return np.zeros(shape, self.dtype(dtype)) if value == 0 else np.full(shape, value, self.dtype(dtype))

    def view(self, flat, dtype, offset, shape, strides):
        """The elements of `flat` from byte `offset` on, as another dtype; strides in elements."""
        dtype = self.dtype(dtype)
        return np.ndarray(shape, dtype, flat, offset, tuple(stride * dtype.itemsize for stride in strides))


class TorchArrays:
    """PyTorch, on one device."""

    def __init__(self, device=None):
        device = torch.get_default_device() if device is None else torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self.device = device

    def dtype(self, name):
        return getattr(torch, name)

    def empty(self, shape, dtype):
        return torch.empty(shape, dtype=self.dtype(dtype), device=self.device)

    def full(self, shape, dtype, value):
        try:
            return torch.full(shape, value, dtype=self.dtype(dtype), device=self.device)
        except RuntimeError as error:
            # On the host PyTorch has no exception of its own for this.
            if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
                raise MemoryError(f"{math.prod(shape)} elements of {dtype}: {error}") from error
            raise

    def view(self, flat, dtype, offset, shape, strides):
        dtype = self.dtype(dtype)
        return flat.view(dtype).as_strided(shape, strides, offset // dtype.itemsize)


def is_torch(array):
    return torch is not None and isinstance(array, torch.Tensor)


def is_traced(array):
    """Whether PyTorch's tracers look on: they know the operations of torch.library, and nothing of DLPack."""
    if torch is None:
        return False
    return torch.compiler.is_compiling() or (is_torch(array) and type(array) is not torch.Tensor)


def arrays_like(array):
    """The library that makes results for inputs like `array`."""
    return TorchArrays(array.device) if is_torch(array) else NumpyArrays()


def argument(name, array):
    """`array` as the module takes it. What the library can check is left to the library."""
    if is_torch(array):
        return _torch_argument(name, array)
    if isinstance(array, np.ndarray):
        return _numpy_argument(name, array)
    if not hasattr(array, "__dlpack__"):
        raise TypeError(f"tensor '{name}': expected an array, got {type(array).__name__}")
    return _dlpack_argument(name, array)


def output(name, array):
    """`array` as the module takes it to write to: itself, never a copy."""
    if not is_torch(array) and not isinstance(array, np.ndarray):
        raise TypeError(f"tensor '{name}': expected a PyTorch tensor or a NumPy array, got {type(array).__name__}")
    if not is_torch(array) and not array.flags.writeable:
        raise ValueError(f"tensor '{name}': expected a writable array, got a read-only one")
    if is_torch(array) and array.is_neg():
        raise ValueError(f"tensor '{name}': expected a plain tensor, got a lazily negated one")
    return argument(name, array)


def packed(array, first):
    """`array`, or a copy where its dimensions from `first` on are not contiguous."""
    if is_torch(array):
        if array.layout is not torch.strided or array.is_contiguous() or _dense(array.shape, array.stride(), first):
            return array
        return array.contiguous()
    if not isinstance(array, np.ndarray) or array.flags.c_contiguous:
        return array
    strides = tuple(stride / array.itemsize for stride in array.strides)
    return array if _dense(array.shape, strides, first) else np.ascontiguousarray(array)


def _dense(shape, strides, first):
    expected = 1
    for extent, stride in zip(reversed(shape[first:]), reversed(strides[first:]), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def _torch_argument(name, array):
    if array.layout is not torch.strided or not (array.is_cpu or array.is_cuda):
        came = f"{array.layout} on {array.device}"
        raise TypeError(f"tensor '{name}': expected a strided tensor on cpu or cuda, got {came}")
    # A lazy negation is a flag that DLPack would drop.
    return array.resolve_neg() if array.is_neg() else array


def _numpy_argument(name, array):
    if not array.dtype.isnative:
        raise TypeError(f"tensor '{name}': expected native byte order, got dtype {array.dtype.str}")
    if array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    # DLPack as it is spoken here has no word for read-only.
    return array if array.flags.writeable else array.copy()


def _dlpack_argument(name, array):
    tensor = tvm_ffi.from_dlpack(array)
    if tensor.device.type != "cpu":
        # Of another library we don't know the stream, and make no results.
        raise TypeError(f"tensor '{name}': on a device, expected a PyTorch tensor (torch.from_dlpack makes one)")
    return tensor
