// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "bench/cuda/kernels.h"

namespace leapquant::bench {
namespace {

constexpr int kThreads = 256;
constexpr int kVectors = 4;  // loads of a thread that are on their way at a time
constexpr int kSweepBlocks = 1024;

__global__ void __launch_bounds__(kThreads)
    copy(uint4* __restrict__ to, const uint4* __restrict__ from, int64_t count) {
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kVectors) + threadIdx.x;
  uint4 values[kVectors] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (first + i * kThreads < count) values[i] = __ldcs(from + first + i * kThreads);
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (first + i * kThreads < count) __stcs(to + first + i * kThreads, values[i]);
  }
}

__global__ void __launch_bounds__(kThreads) read(uint4* zeros, int64_t count) {
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kVectors) + threadIdx.x;
  uint4 values[kVectors] = {};
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    if (first + i * kThreads < count) values[i] = __ldcs(zeros + first + i * kThreads);
  }
  uint32_t seen = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) seen |= values[i].x | values[i].y | values[i].z | values[i].w;
  if (seen != 0) zeros[0].x = seen;  // never happens; without it nothing would be read
}

__global__ void __launch_bounds__(kThreads) sweep(uint4* zeros, int64_t count) {
  uint32_t seen = 0;
  for (int64_t n = int64_t{blockIdx.x} * kThreads + threadIdx.x; n < count; n += int64_t{gridDim.x} * kThreads) {
    const uint4 value = __ldcg(zeros + n);
    seen |= value.x | value.y | value.z | value.w;
  }
  if (seen != 0) zeros[0].x = seen;  // never happens; without it nothing would be read
}

// Blocks for a stream of so many vectors.
unsigned blocks_of(int64_t count) {
  constexpr int64_t kBlockVectors = kThreads * kVectors;
  return static_cast<unsigned>((count + kBlockVectors - 1) / kBlockVectors);
}

}  // namespace

cudaError_t launch_copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  copy<<<blocks_of(count), kThreads, 0, stream>>>(static_cast<uint4*>(to), static_cast<const uint4*>(from), count);
  return cudaGetLastError();
}

cudaError_t launch_read(void* zeros, size_t bytes, cudaStream_t stream) {
  const auto count = static_cast<int64_t>(bytes / sizeof(uint4));
  read<<<blocks_of(count), kThreads, 0, stream>>>(static_cast<uint4*>(zeros), count);
  return cudaGetLastError();
}

cudaError_t launch_sweep(void* zeros, size_t bytes, cudaStream_t stream) {
  sweep<<<kSweepBlocks, kThreads, 0, stream>>>(static_cast<uint4*>(zeros), static_cast<int64_t>(bytes / sizeof(uint4)));
  return cudaGetLastError();
}

}  // namespace leapquant::bench
