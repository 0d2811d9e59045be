// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/draft/config.h"

namespace leapquant::cuda::draft {

// Loads the kernels on the current device, so that a later launch loads, allocates and synchronises nothing.
cudaError_t prepare_drafts();

// Each enqueues one launch on the current device. A commit is a fill, a flush of the same slots, and the rest.
cudaError_t launch_draft(const DraftArguments& arguments, cudaStream_t stream);
cudaError_t launch_fill(const CommitArguments& arguments, cudaStream_t stream);
cudaError_t launch_rest(const CommitArguments& arguments, cudaStream_t stream);

}  // namespace leapquant::cuda::draft
