// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/state/config.h"

namespace leapquant::cuda::state {

// Loads the kernels on the current device, so that a later launch loads, allocates and synchronises nothing.
cudaError_t prepare_states();

// Each enqueues one launch on the current device.
cudaError_t launch_import(const ImportArguments& arguments, cudaStream_t stream);
cudaError_t launch_export(const StateArguments& arguments, cudaStream_t stream);

}  // namespace leapquant::cuda::state
