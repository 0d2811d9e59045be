// SPDX-License-Identifier: Apache-2.0
#include "cuda/slots/kernel.cuh"
#include "cuda/slots/launch.h"

namespace leapquant::cuda::slots {
namespace {

template <class Kernel>
cudaError_t load(Kernel kernel) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, kernel);
}

template <CounterRule kRule>
cudaError_t launch(const CounterArguments& arguments, cudaStream_t stream) {
  const uint32_t blocks = (arguments.programs + kThreads - 1) / kThreads;
  counter_kernel<kRule><<<blocks, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

}  // namespace

cudaError_t prepare_slots() {
  for (const cudaError_t error :
       {load(reset_kernel), load(copy_kernel), load(counter_kernel<CounterRule::kDropFlushed>),
        load(counter_kernel<CounterRule::kMarkDue>), load(counter_kernel<CounterRule::kEmpty>)}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launch_reset(const SlotArguments& arguments, cudaStream_t stream) {
  reset_kernel<<<arguments.programs, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

cudaError_t launch_copy(const SlotArguments& arguments, cudaStream_t stream) {
  copy_kernel<<<arguments.programs, kThreads, 0, stream>>>(arguments);
  return cudaGetLastError();
}

cudaError_t launch_counters(CounterRule rule, const CounterArguments& arguments, cudaStream_t stream) {
  switch (rule) {
    case CounterRule::kDropFlushed:
      return launch<CounterRule::kDropFlushed>(arguments, stream);
    case CounterRule::kMarkDue:
      return launch<CounterRule::kMarkDue>(arguments, stream);
    case CounterRule::kEmpty:
      return launch<CounterRule::kEmpty>(arguments, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace leapquant::cuda::slots
