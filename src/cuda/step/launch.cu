// SPDX-License-Identifier: Apache-2.0
#include "cuda/step/kernel.cuh"
#include "cuda/step/launch.h"

namespace leapquant::cuda::step {
namespace {

template <Decay kDecay>
cudaError_t prepare() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, step_kernel<kDecay>);
}

template <Decay kDecay>
cudaError_t launch(const StepArguments& arguments, cudaStream_t stream) {
  step_kernel<kDecay><<<arguments.programs, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t prepare_step() {
  const cudaError_t error = prepare<Decay::kByChannel>();
  return error != cudaSuccess ? error : prepare<Decay::kByHead>();
}

cudaError_t launch_step(const StepArguments& arguments, cudaStream_t stream) {
  if (arguments.decay == Decay::kByHead) return launch<Decay::kByHead>(arguments, stream);
  return launch<Decay::kByChannel>(arguments, stream);
}

}  // namespace leapquant::cuda::step
