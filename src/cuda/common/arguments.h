// SPDX-License-Identifier: Apache-2.0
//
// From the views of a plan to what kernels are given.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "core/program_view.h"
#include "core/status.h"
#include "cuda/common/program.h"

namespace leapquant::cuda {

inline constexpr int64_t kAlignment = 16;  // of every tensor and stride: the kernels copy 16 bytes at a time

template <class T>
ProgramBytes in_bytes(const Strided<T>& tensor) {
  constexpr int64_t kSize = sizeof(T);
  using Bytes = char*;
  return {const_cast<Bytes>(reinterpret_cast<const char*>(tensor.base)), tensor.item_stride * kSize,
          tensor.head_stride * kSize};
}

// How many programs there are along each dimension: strides over a single one don't matter.
struct ProgramCounts {
  int64_t items;
  int64_t heads;
};

// Every program of a tensor must begin at a multiple of 16 bytes, and so must further rows, `row` bytes apart.
inline Status check_alignment(const char* name, const ProgramBytes& tensor, const ProgramCounts& counts,
                              int64_t row = 0) {
  int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.base) % kAlignment);
  if (counts.items > 1) misaligned |= tensor.item_stride % kAlignment;
  if (counts.heads > 1) misaligned |= tensor.head_stride % kAlignment;
  misaligned |= row % kAlignment;
  if (misaligned == 0) return {};
  return unsupported(std::string("backend 'cuda' needs every program of tensor '") + name +
                     "' at a multiple of 16 bytes; copy it to aligned memory");
}

// The kernels count programs in 32 bits.
inline Status check_programs(const char* verb, int64_t programs) {
  if (programs <= std::numeric_limits<int32_t>::max()) return {};
  return unsupported(std::string("backend 'cuda' ") + verb + " at most 2147483647 programs a call, got " +
                     std::to_string(programs));
}

}  // namespace leapquant::cuda
