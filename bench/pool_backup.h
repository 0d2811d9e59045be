// SPDX-License-Identifier: Apache-2.0
//
// Tensors of a pool, in host memory or in that of a GPU, put back as they were: a benchmark calls an operation again
// and again, and each call is to meet what the first one met.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "leapquant/leapquant.h"

namespace leapquant::bench {

// What has to be put back before an operation in place is called again. A flush leaves counters, keys and updates
// alone; a step writes keys, updates and gates only where nothing is read; a cycle of both leaves nothing as it was.
std::vector<lq_tensor> changed_by_flush(const lq_pool_tensors& pool);
std::vector<lq_tensor> changed_by_step(const lq_pool_tensors& pool);
std::vector<lq_tensor> changed_by_cycle(const lq_pool_tensors& pool);

class PoolBackup {
 public:
  // Copies contiguous tensors, each within its host or device; they outlive this object. Those of the other gate, which
  // have no data, are left out.
  explicit PoolBackup(const std::vector<lq_tensor>& tensors);

  // Copies back: at once on the host, enqueued on `stream`, a cudaStream_t, on a GPU. Nothing passes through the host.
  void restore(void* stream = nullptr) const;

 private:
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> on_host_;
  std::vector<std::pair<void*, device::CudaMemory>> on_device_;
};

}  // namespace leapquant::bench
