// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/flush/config.h"

namespace leapquant::cuda {

// Blocks that the device runs at once, by the number of columns; and whether it launches them ahead.
struct ResidentBlocks {
  int columns4 = 0;
  int columns8 = 0;
  bool ahead = false;
};

// The same for each decay.
struct FlushKernels {
  ResidentBlocks by_channel;
  ResidentBlocks by_head;
};

// Loads the kernels on the current device and allows them the shared memory they need, so that a later launch loads,
// allocates and synchronises nothing.
cudaError_t prepare_flush(FlushKernels* kernels);

// Enqueues one launch on the device that `kernels` is of, which is current.
cudaError_t launch_flush(const FlushArguments& arguments, const FlushKernels& kernels, cudaStream_t stream);

}  // namespace leapquant::cuda
