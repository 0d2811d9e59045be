// SPDX-License-Identifier: Apache-2.0
#include "bench/pool_backup.h"

#include <algorithm>

namespace leapquant::bench {

std::vector<lq_tensor> changed_by_flush(const lq_pool_tensors& pool) {
  return {pool.raw, pool.w, pool.gbuf, pool.pcum, pool.p};
}

std::vector<lq_tensor> changed_by_step(const lq_pool_tensors& pool) { return {pool.w, pool.pcum, pool.p, pool.hcnt}; }

std::vector<lq_tensor> changed_by_cycle(const lq_pool_tensors& pool) {
  return {pool.raw, pool.kbuf, pool.ubuf, pool.w, pool.gbuf, pool.pcum, pool.p, pool.hcnt};
}

PoolBackup::PoolBackup(const std::vector<lq_tensor>& tensors) {
  for (const lq_tensor& tensor : tensors) {
    if (tensor.data == nullptr) continue;
    const size_t bytes = device::tensor_bytes(tensor);
    if (tensor.device.type == LQ_DEVICE_CPU) {
      auto* const data = static_cast<std::byte*>(tensor.data);
      on_host_.emplace_back(data, std::vector<std::byte>(data, data + bytes));
    } else {
      device::CudaMemory copy(tensor.device.index, bytes);
      copy.copy_from(tensor.data);
      on_device_.emplace_back(tensor.data, std::move(copy));
    }
  }
}

void PoolBackup::restore(void* stream) const {
  for (const auto& [data, copy] : on_host_) std::copy(copy.begin(), copy.end(), data);
  for (const auto& [data, copy] : on_device_) copy.enqueue_copy_to(data, stream);
}

}  // namespace leapquant::bench
