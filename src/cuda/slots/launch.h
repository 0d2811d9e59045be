// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/slots/config.h"

namespace leapquant::cuda::slots {

// Loads the kernels on the current device, so that a later launch loads, allocates and synchronises nothing.
cudaError_t prepare_slots();

// Each enqueues one launch on the current device.
cudaError_t launch_reset(const SlotArguments& arguments, cudaStream_t stream);
cudaError_t launch_copy(const SlotArguments& arguments, cudaStream_t stream);
cudaError_t launch_counters(CounterRule rule, const CounterArguments& arguments, cudaStream_t stream);

}  // namespace leapquant::cuda::slots
