// SPDX-License-Identifier: Apache-2.0
#include "cuda/step/kernel.cuh"
#include "cuda/step/launch.h"

namespace leapquant::cuda::step {

cudaError_t prepare_step() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, step_kernel);
}

cudaError_t launch_step(const StepArguments& arguments, cudaStream_t stream) {
  step_kernel<<<arguments.programs, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace leapquant::cuda::step
