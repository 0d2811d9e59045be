// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <stdexcept>

namespace leapquant::cuda_test {

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();
  return 0;
}

DeviceArray::DeviceArray(size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes));
  memory_.reset(static_cast<char*>(memory));
}

std::vector<unsigned char> DeviceArray::download() const {
  std::vector<unsigned char> result(bytes_);
  check_cuda(cudaDeviceSynchronize());
  check_cuda(cudaMemcpy(result.data(), data(), bytes_, cudaMemcpyDeviceToHost));
  return result;
}

Snapshot::Snapshot(const Pool& pool) {
  const lq_pool_tensors tensors = pool.tensors();
  check_cuda(cudaDeviceSynchronize());
  for (const auto member : conformance::kPoolOwners) {
    const lq_tensor& tensor = tensors.*member;
    const DeviceArray& copy = arrays_.emplace_back(conformance::tensor_bytes(tensor));
    check_cuda(cudaMemcpy(copy.data(), tensor.data, copy.bytes(), cudaMemcpyDeviceToDevice));
  }
  check_cuda(cudaDeviceSynchronize());
}

void Snapshot::restore(const Pool& pool, cudaStream_t stream) const {
  const lq_pool_tensors tensors = pool.tensors();
  size_t next = 0;
  for (const auto member : conformance::kPoolOwners) {
    const DeviceArray& copy = arrays_[next++];
    check_cuda(cudaMemcpyAsync((tensors.*member).data, copy.data(), copy.bytes(), cudaMemcpyDeviceToDevice, stream));
  }
}

}  // namespace leapquant::cuda_test
