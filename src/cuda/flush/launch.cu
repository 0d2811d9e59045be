// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/flush/kernel.cuh"
#include "cuda/flush/launch.h"

namespace leapquant::cuda {
namespace {

template <int kColumns>
cudaError_t prepare() {
  return cudaFuncSetAttribute(flush_kernel<kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              static_cast<int>(sizeof(SharedStorage<kColumns>)));
}

template <int kColumns>
cudaError_t launch(const FlushArguments& arguments, int blocks, cudaStream_t stream) {
  flush_kernel<kColumns><<<blocks, kThreads, sizeof(SharedStorage<kColumns>), stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t prepare_flush(size_t block_bytes, int32_t* largest_rank) {
  static_assert(sizeof(SharedStorage<4>) <= 99 * 1024, "every architecture from sm_80 on has this much");
  *largest_rank = 4;
  const cudaError_t error = prepare<4>();
  if (error != cudaSuccess || sizeof(SharedStorage<8>) > block_bytes) return error;
  *largest_rank = 8;
  return prepare<8>();
}

cudaError_t launch_flush(const FlushArguments& arguments, int multiprocessors, cudaStream_t stream) {
  const int most = std::max(kBlocksPerSm * multiprocessors, kSmallestListGrid);
  int blocks = static_cast<int>(std::min<int64_t>(arguments.selection.programs, most));
  // The list of a block holds its share of one scan.
  if (arguments.selection.slot_index != nullptr) blocks = std::max(blocks, kSmallestListGrid);
  return arguments.rank <= 4 ? launch<4>(arguments, blocks, stream) : launch<8>(arguments, blocks, stream);
}

}  // namespace leapquant::cuda
