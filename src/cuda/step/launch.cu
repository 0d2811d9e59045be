// SPDX-License-Identifier: Apache-2.0
#include "cuda/common/launch_ahead.h"
#include "cuda/step/kernel.cuh"
#include "cuda/step/launch.h"

namespace leapquant::cuda::step {
namespace {

template <Decay kDecay>
cudaError_t launch(const StepArguments& arguments, bool ahead, cudaStream_t stream) {
  return launch_ahead(step_kernel<kDecay>, {static_cast<int>(arguments.programs), kThreads, 0}, ahead, arguments,
                      stream);
}

}  // namespace

cudaError_t prepare_step(StepKernels* kernels) {
  const cudaError_t error = can_launch_ahead(step_kernel<Decay::kByChannel>, &kernels->ahead);
  return error == cudaSuccess ? can_launch_ahead(step_kernel<Decay::kByHead>, &kernels->ahead) : error;
}

cudaError_t launch_step(const StepArguments& arguments, const StepKernels& kernels, cudaStream_t stream) {
  if (arguments.decay == Decay::kByHead) return launch<Decay::kByHead>(arguments, kernels.ahead, stream);
  return launch<Decay::kByChannel>(arguments, kernels.ahead, stream);
}

}  // namespace leapquant::cuda::step
