// SPDX-License-Identifier: Apache-2.0
//
// Tensors of a pool in the memory of a GPU, put back as they were.
#pragma once

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "leapquant/leapquant.h"

namespace leapquant::bench {

class PoolBackup {
 public:
  // Tensors of the other gate, which have no data, are left out.
  PoolBackup(int32_t device, std::initializer_list<lq_tensor> tensors);

  // Enqueues the copies.
  void restore(cudaStream_t stream) const;

 private:
  std::vector<std::pair<void*, device::CudaMemory>> saved_;
};

}  // namespace leapquant::bench
