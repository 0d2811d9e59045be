// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/pool_backup.h"

#include "device/cuda_check.h"

namespace leapquant::bench {

using device::check_cuda;

PoolBackup::PoolBackup(int32_t device, std::initializer_list<lq_tensor> tensors) {
  for (const lq_tensor& tensor : tensors) {
    if (tensor.data == nullptr) continue;
    device::CudaMemory copy(device, device::tensor_bytes(tensor));
    check_cuda(cudaMemcpy(copy.data(), tensor.data, copy.bytes(), cudaMemcpyDeviceToDevice), "saving a pool");
    saved_.emplace_back(tensor.data, std::move(copy));
  }
}

void PoolBackup::restore(cudaStream_t stream) const {
  for (const auto& [tensor, copy] : saved_) {
    check_cuda(cudaMemcpyAsync(tensor, copy.data(), copy.bytes(), cudaMemcpyDeviceToDevice, stream),
               "restoring a pool");
  }
}

}  // namespace leapquant::bench
