// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/flush/config.h"

namespace leapquant::cuda {

// Blocks that the device runs at once, by the number of columns.
struct ResidentBlocks {
  int columns4 = 0;
  int columns8 = 0;
};

// Loads the kernels on the current device and allows them the shared memory they need, so that a later launch loads,
// allocates and synchronises nothing.
cudaError_t prepare_flush(ResidentBlocks* resident);

// Enqueues one launch on the device that `resident` is of, which is current.
cudaError_t launch_flush(const FlushArguments& arguments, const ResidentBlocks& resident, cudaStream_t stream);

}  // namespace leapquant::cuda
