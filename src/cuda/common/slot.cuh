// SPDX-License-Identifier: Apache-2.0
//
// Programs of a pool's slots.
#pragma once

#include "cuda/common/program.h"
#include "plan/error_word.h"

namespace leapquant::cuda {

// Where a tensor has the program of an item (a slot, or a batch position) and a head.
__device__ __forceinline__ char* tensor_at(const ProgramBytes& tensor, int64_t item, uint32_t head) {
  return tensor.base + item * tensor.item_stride + int64_t{head} * tensor.head_stride;
}

__device__ __forceinline__ bool names_slot(int32_t slot, int64_t num_slots) { return slot > 0 && slot < num_slots; }

// What was met at a batch position. The smallest position stands.
__device__ __forceinline__ void record_error(ErrorWord* errors, ErrorKind kind, uint32_t position) {
  atomicMin(errors->first_position + static_cast<int>(kind), static_cast<int>(position));
}

// One of a call's programs [batch, heads]: its place in the batch, its slot and its head.
struct SlotProgram {
  uint32_t position;
  uint32_t head;
  int32_t slot;

  __device__ __forceinline__ SlotProgram(uint32_t number, uint32_t heads, const int32_t* slot_index)
      : position(number / heads), head(number - position * heads), slot(slot_index[position]) {}

  // Where a pool's tensor has it.
  template <class T>
  __device__ __forceinline__ T* in(const ProgramBytes& tensor) const {
    return reinterpret_cast<T*>(tensor_at(tensor, slot, head));
  }
};

// Whether the slot of a block's program is one of the pool. An index beyond is recorded.
__device__ __forceinline__ bool has_slot(const SlotProgram& program, int64_t num_slots, ErrorWord* errors) {
  if (names_slot(program.slot, num_slots)) return true;
  if (program.slot > 0 && threadIdx.x == 0) record_error(errors, ErrorKind::kIndex, program.position);
  return false;
}

}  // namespace leapquant::cuda
