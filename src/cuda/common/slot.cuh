// SPDX-License-Identifier: Apache-2.0
//
// Programs of a pool's slots.
#pragma once

#include "cuda/common/program.h"

namespace leapquant::cuda {

// Where a tensor has the program of an item (a slot, or a batch position) and a head.
__device__ __forceinline__ char* tensor_at(const ProgramBytes& tensor, int64_t item, uint32_t head) {
  return tensor.base + item * tensor.item_stride + int64_t{head} * tensor.head_stride;
}

__device__ __forceinline__ bool names_slot(int32_t slot, int64_t num_slots) { return slot > 0 && slot < num_slots; }

}  // namespace leapquant::cuda
