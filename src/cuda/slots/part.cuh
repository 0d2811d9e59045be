// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a program in one tensor, worked on by a whole block.
#pragma once

#include "cuda/common/slot.cuh"
#include "cuda/slots/config.h"

namespace leapquant::cuda::slots {

template <class Word>
__device__ __forceinline__ Word& word(char* bytes, int offset) {
  return *reinterpret_cast<Word*>(bytes + offset);
}

// Calls `use` with the offset of each whole word between `first` and `end`, shared out among the block's threads.
template <class Word, class Use>
__device__ __forceinline__ void for_each_word(int first, int end, Use use) {
  constexpr int kBytes = sizeof(Word);
  const int step = kBytes * static_cast<int>(blockDim.x);
  for (int n = first + kBytes * static_cast<int>(threadIdx.x); n + kBytes <= end; n += step) use(n);
}

// What a new pool holds there.
__device__ __forceinline__ void reset_part(const Part& part, const SlotProgram& program) {
  const uint4 fresh = make_uint4(part.fresh, part.fresh, part.fresh, part.fresh);
  char* const target = program.in<char>(part.tensor);
  for_each_word<uint4>(0, part.bytes, [&](int offset) { word<uint4>(target, offset) = fresh; });
  for_each_word<uint32_t>(part.bytes / 16 * 16, part.bytes,
                          [&](int offset) { word<uint32_t>(target, offset) = part.fresh; });
}

}  // namespace leapquant::cuda::slots
