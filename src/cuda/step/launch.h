// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/step/config.h"

namespace leapquant::cuda::step {

// Loads the kernels on the current device, so that a later launch loads, allocates and synchronises nothing.
cudaError_t prepare_step();

// Enqueues one launch on the current device.
cudaError_t launch_step(const StepArguments& arguments, cudaStream_t stream);

}  // namespace leapquant::cuda::step
