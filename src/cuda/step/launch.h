// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/step/config.h"

namespace leapquant::cuda::step {

// What a device's launches need to know.
struct StepKernels {
  bool ahead = false;  // whether they are launched ahead
};

// Loads the kernels on the current device, so that a later launch loads, allocates and synchronises nothing.
cudaError_t prepare_step(StepKernels* kernels);

// Enqueues one launch on the device that `kernels` is of, which is current.
cudaError_t launch_step(const StepArguments& arguments, const StepKernels& kernels, cudaStream_t stream);

}  // namespace leapquant::cuda::step
