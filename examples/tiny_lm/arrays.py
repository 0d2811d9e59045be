# SPDX-License-Identifier: Apache-2.0
"""NumPy on the CPU, or PyTorch on a device, behind one face: `xp` is the module, for what both spell alike."""

import json

import numpy as np


class NumpyArrays:
    """bfloat16 arrays are uint16 bit patterns, which NumPy can hold without another package."""

    name = "numpy"
    device = "cpu"
    xp = np

    def array(self, array):
        """A NumPy array, as one of this library's."""
        return array

    def to_numpy(self, array):
        return array

    def to_bf16(self, array):
        """fp32 rounded to bfloat16, half to even. Finite values only."""
        bits = np.ascontiguousarray(array).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)

    def to_fp32(self, array):
        return (array.astype(np.uint32) << 16).view(np.float32)

    def to_int8(self, array):
        return array.astype(np.int8)


class TorchArrays:
    """Tensors on `device`; arithmetic in plain fp32."""

    name = "torch"

    def __init__(self, device):
        import torch

        self.xp = torch
        self.device = device

    def array(self, array):
        return self.xp.from_numpy(array).to(self.device)

    def to_numpy(self, array):
        return array.cpu().numpy()

    def to_bf16(self, array):
        return array.to(self.xp.bfloat16)

    def to_fp32(self, array):
        return array.to(self.xp.float32)

    def to_int8(self, array):
        return array.to(self.xp.int8)


def make_arrays(device):
    """NumPy where no device is named: it needs no other package."""
    return NumpyArrays() if device is None else TorchArrays(device)


def read_safetensors(path):
    """The tensors of a file that holds bfloat16 and fp32, by name, as fp32."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = (begin + offset for offset in entry["data_offsets"])
        tensors[name] = _fp32(path, name, entry["dtype"], data[first:last]).reshape(entry["shape"])
    return tensors


def _fp32(path, name, dtype, data):
    if dtype == "BF16":
        return NumpyArrays().to_fp32(np.frombuffer(data, np.uint16))
    if dtype == "F32":
        return np.frombuffer(data, np.float32)
    raise ValueError(f"{path}: tensor '{name}': expected BF16 or F32, got {dtype}")
