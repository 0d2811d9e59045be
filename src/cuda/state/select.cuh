// SPDX-License-Identifier: Apache-2.0
//
// Which program a block imports or exports, and where it is.
#pragma once

#include "cuda/common/slot.cuh"
#include "cuda/state/config.h"

namespace leapquant::cuda::state {

__device__ __forceinline__ SlotProgram program_of(const StateArguments& arguments) {
  return {blockIdx.x, arguments.heads, arguments.slot_index};
}

// One of the program's tensors in the pool.
template <class T>
__device__ __forceinline__ T* tensor_of(const StateArguments& arguments, int tensor, const SlotProgram& program) {
  return program.in<T>(arguments.tensor[tensor]);
}

// The program's dense state.
template <class T>
__device__ __forceinline__ T* state_of(const StateArguments& arguments, const SlotProgram& program) {
  return reinterpret_cast<T*>(tensor_at(arguments.states.tensor, program.position, program.head));
}

// What was met at the block's batch position.
__device__ __forceinline__ void record(const StateArguments& arguments, ErrorKind kind, const SlotProgram& program) {
  if (threadIdx.x == 0) record_error(arguments.errors, kind, program.position);
}

}  // namespace leapquant::cuda::state
