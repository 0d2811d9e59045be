// SPDX-License-Identifier: Apache-2.0
//
// Which program a block imports or exports.
#pragma once

#include "cuda/common/slot.cuh"
#include "cuda/state/config.h"

namespace leapquant::cuda::state {

// The block's program: its place in the batch, its slot and its head.
struct Program {
  uint32_t position;
  uint32_t head;
  int32_t slot;

  __device__ __forceinline__ explicit Program(const StateArguments& arguments)
      : position(blockIdx.x / arguments.heads),
        head(blockIdx.x - position * arguments.heads),
        slot(arguments.slot_index[position]) {}
};

// What was met at a batch position. The smallest position stands.
__device__ __forceinline__ void record(const StateArguments& arguments, Trouble trouble, const Program& program) {
  if (threadIdx.x != 0) return;
  atomicMin(arguments.first_error_position + static_cast<int>(trouble), static_cast<int>(program.position));
}

// Whether the program's slot is one of the pool. An index beyond is recorded.
__device__ __forceinline__ bool has_slot(const StateArguments& arguments, const Program& program) {
  if (names_slot(program.slot, arguments.num_slots)) return true;
  if (program.slot > 0) record(arguments, Trouble::kIndex, program);
  return false;
}

// One of the program's tensors in the pool.
template <class T>
__device__ __forceinline__ T* tensor_of(const StateArguments& arguments, Tensor tensor, const Program& program) {
  return reinterpret_cast<T*>(tensor_at(arguments.tensor[tensor], program.slot, program.head));
}

// The program's dense state.
template <class T>
__device__ __forceinline__ T* state_of(const StateArguments& arguments, const Program& program) {
  return reinterpret_cast<T*>(tensor_at(arguments.states.tensor, program.position, program.head));
}

}  // namespace leapquant::cuda::state
