// SPDX-License-Identifier: Apache-2.0
//
// Two kernels that the build must refuse: see cmake/Cuda.cmake. Not part of any target.

// 1024 threads leave 64 registers each, and more values than that are alive at once.
__global__ void __launch_bounds__(1024) planted_spill(float* values) {
  float kept[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) kept[i] = values[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) values[threadIdx.x * 96 + 95 - i] = kept[i] * kept[(i * 7) % 96];
}

// An array indexed by values that only the run knows.
__global__ void planted_array(const int* indices, float* values) {
  float kept[32] = {};
  for (int i = 0; i < 100; ++i) kept[indices[i] % 32] += values[i];
  values[threadIdx.x] = kept[threadIdx.x % 32];
}
