// SPDX-License-Identifier: Apache-2.0
//
// The device code of the benchmark: a copy and a read, to measure what the memory can do, and a read that empties the
// L2 cache.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace leapquant::bench {

// Copies between aligned memory that doesn't overlap; `bytes` is a multiple of 16.
cudaError_t launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

// Reads `zeros`, aligned and holding nothing else, once; `bytes` is a multiple of 16.
cudaError_t launch_read(void* zeros, size_t bytes, cudaStream_t stream);

// Reads `zeros`, which hold nothing else; `bytes` is a multiple of 16. A cache smaller than that then holds only lines
// that are clean and of no use to anybody.
cudaError_t launch_sweep(void* zeros, size_t bytes, cudaStream_t stream);

}  // namespace leapquant::bench
