// SPDX-License-Identifier: Apache-2.0
#include "cuda/draft/commit.cuh"
#include "cuda/draft/draft.cuh"
#include "cuda/draft/launch.h"

namespace leapquant::cuda::draft {
namespace {

template <Decay kDecay>
cudaError_t prepare() {
  cudaFuncAttributes attributes;
  for (const cudaError_t error : {cudaFuncGetAttributes(&attributes, draft_kernel<kDecay>),
                                  cudaFuncGetAttributes(&attributes, fill_kernel<kDecay>),
                                  cudaFuncGetAttributes(&attributes, rest_kernel<kDecay>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

// The kernel for the decay, a block a program.
template <class Arguments>
cudaError_t launch(void (*by_channel)(Arguments), void (*by_head)(Arguments), Decay decay, uint32_t programs,
                   const Arguments& arguments, cudaStream_t stream) {
  const auto kernel = decay == Decay::kByHead ? by_head : by_channel;
  kernel<<<programs, step::kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t prepare_drafts() {
  const cudaError_t error = prepare<Decay::kByChannel>();
  return error != cudaSuccess ? error : prepare<Decay::kByHead>();
}

cudaError_t launch_draft(const DraftArguments& arguments, cudaStream_t stream) {
  return launch(draft_kernel<Decay::kByChannel>, draft_kernel<Decay::kByHead>, arguments.step.decay,
                arguments.step.programs, arguments, stream);
}

cudaError_t launch_fill(const CommitArguments& arguments, cudaStream_t stream) {
  return launch(fill_kernel<Decay::kByChannel>, fill_kernel<Decay::kByHead>, arguments.decay, arguments.programs,
                arguments, stream);
}

cudaError_t launch_rest(const CommitArguments& arguments, cudaStream_t stream) {
  return launch(rest_kernel<Decay::kByChannel>, rest_kernel<Decay::kByHead>, arguments.decay, arguments.programs,
                arguments, stream);
}

}  // namespace leapquant::cuda::draft
