// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/flush/config.h"

namespace leapquant::cuda {

// Loads the kernels on the current device and allows them the shared memory they need, so that a later launch loads,
// allocates and synchronises nothing. `block_bytes` is the most shared memory that the device gives one block;
// `largest_rank` becomes the largest rank whose kernel gets by with it.
cudaError_t prepare_flush(size_t block_bytes, int32_t* largest_rank);

// Enqueues one launch. `multiprocessors` are those of the current device.
cudaError_t launch_flush(const FlushArguments& arguments, int multiprocessors, cudaStream_t stream);

}  // namespace leapquant::cuda
