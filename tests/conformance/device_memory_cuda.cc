// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <stdexcept>

#include "cuda/common/check.h"
#include "device_memory.h"

namespace leapquant::conformance {
namespace {

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

}  // namespace

void* allocate_on_device(int32_t device, size_t bytes) {
  const cuda::DeviceGuard guard(device);
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes));
  return memory;
}

void free_on_device(void* memory) noexcept { (void)cudaFree(memory); }

void copy_to_device(int32_t device, void* memory, const void* host, size_t bytes) {
  const cuda::DeviceGuard guard(device);
  check_cuda(cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice));
  check_cuda(cudaStreamSynchronize(nullptr));  // the copy alone may return before the last bytes have arrived
}

void copy_from_device(int32_t device, void* host, const void* memory, size_t bytes) {
  const cuda::DeviceGuard guard(device);
  check_cuda(cudaDeviceSynchronize());
  check_cuda(cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost));
}

}  // namespace leapquant::conformance
