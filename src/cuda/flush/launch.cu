// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "cuda/common/launch_ahead.h"
#include "cuda/flush/kernel.cuh"
#include "cuda/flush/launch.h"

namespace leapquant::cuda {
namespace {

// The kernel's shared memory, and how many of its blocks the current device runs at once.
template <Decay kDecay, int kColumns>
cudaError_t prepare(int* resident) {
  constexpr int kBytes = sizeof(SharedStorage<kColumns>);
  static_assert(kBytes <= 99 * 1024, "every architecture from sm_80 on has this much");
  cudaError_t error =
      cudaFuncSetAttribute(flush_kernel<kDecay, kColumns>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  int of_one = 0;
  error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_one, flush_kernel<kDecay, kColumns>, kThreads, kBytes);
  if (error != cudaSuccess) return error;
  int device = 0;
  int multiprocessors = 0;
  error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  *resident = of_one * multiprocessors;
  return error;
}

template <Decay kDecay, int kColumns>
cudaError_t launch(const FlushArguments& arguments, int blocks, bool ahead, cudaStream_t stream) {
  return launch_ahead(flush_kernel<kDecay, kColumns>, {blocks, kThreads, sizeof(SharedStorage<kColumns>)}, ahead,
                      arguments, stream);
}

// As many blocks as the device runs at once. In the functional form, where every program is due, no more than are
// needed for as few rounds; in place a block's list has to hold its share of one scan.
int grid_of(const Selection& selection, int resident) {
  const int64_t most = std::min<int64_t>(selection.programs, resident);
  if (selection.slot_index != nullptr) return static_cast<int>(std::max<int64_t>(most, kSmallestListGrid));
  const int64_t rounds = (selection.programs + most - 1) / most;
  return static_cast<int>((selection.programs + rounds - 1) / rounds);
}

template <Decay kDecay>
cudaError_t prepare(ResidentBlocks* resident) {
  cudaError_t error = prepare<kDecay, 4>(&resident->columns4);
  if (error == cudaSuccess) error = prepare<kDecay, 8>(&resident->columns8);
  return error == cudaSuccess ? can_launch_ahead(flush_kernel<kDecay, 4>, &resident->ahead) : error;
}

template <Decay kDecay>
cudaError_t launch(const FlushArguments& arguments, const ResidentBlocks& resident, cudaStream_t stream) {
  if (arguments.rank <= 4) {
    return launch<kDecay, 4>(arguments, grid_of(arguments.selection, resident.columns4), resident.ahead, stream);
  }
  return launch<kDecay, 8>(arguments, grid_of(arguments.selection, resident.columns8), resident.ahead, stream);
}

}  // namespace

cudaError_t prepare_flush(FlushKernels* kernels) {
  const cudaError_t error = prepare<Decay::kByChannel>(&kernels->by_channel);
  return error != cudaSuccess ? error : prepare<Decay::kByHead>(&kernels->by_head);
}

cudaError_t launch_flush(const FlushArguments& arguments, const FlushKernels& kernels, cudaStream_t stream) {
  if (arguments.decay == Decay::kByHead) return launch<Decay::kByHead>(arguments, kernels.by_head, stream);
  return launch<Decay::kByChannel>(arguments, kernels.by_channel, stream);
}

}  // namespace leapquant::cuda
