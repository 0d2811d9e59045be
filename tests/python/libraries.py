# SPDX-License-Identifier: Apache-2.0
"""The array libraries that the tests run over, behind one face."""

import numpy as np
from leapquant._arrays import NumpyArrays, TorchArrays, torch


class NumpyLibrary:
    """NumPy on the CPU."""

    name = "numpy"
    device = "cpu"
    xp = np

    def __init__(self, seed=1):
        self._arrays = NumpyArrays()
        self._random = np.random.default_rng(seed)

    def normal(self, *shape):
        return self._random.standard_normal(shape, np.float32)

    def uniform(self, low, high, *shape):
        return (low + (high - low) * self._random.random(shape, np.float32)).astype(np.float32)

    def cast(self, array, dtype):
        return np.asarray(array).astype(self._arrays.dtype(dtype))

    def from_numpy(self, array):
        return array.copy()

    def to_numpy(self, array):
        return np.array(array)

    def bits(self, array):
        return np.ascontiguousarray(array).tobytes()


class TorchLibrary:
    """PyTorch on one device."""

    xp = torch

    def __init__(self, device, seed=1):
        self.device = str(device)
        self.name = f"torch-{self.device}"
        self._arrays = TorchArrays(device)
        self._random = torch.Generator(device=device).manual_seed(seed)

    def normal(self, *shape):
        return torch.randn(shape, generator=self._random, device=self.device)

    def uniform(self, low, high, *shape):
        return low + (high - low) * torch.rand(shape, generator=self._random, device=self.device)

    def cast(self, array, dtype):
        return array.to(self._arrays.dtype(dtype))

    def from_numpy(self, array):
        return torch.from_numpy(array.copy()).to(self.device)

    def to_numpy(self, array):
        return (array.float() if array.dtype == torch.bfloat16 else array).cpu().numpy()

    def bits(self, array):
        return array.contiguous().view(torch.uint8).cpu().numpy().tobytes()


def pool_arrays(library):
    """The arguments that make a pool of this library's arrays."""
    return {"device": library.device, "arrays": library.name.partition("-")[0]}
