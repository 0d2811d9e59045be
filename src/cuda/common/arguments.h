// SPDX-License-Identifier: Apache-2.0
//
// From the views of a plan to what kernels are given.
#pragma once

#include <cstdint>

#include "core/geometry.h"
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

// Every program of a tensor must begin at a multiple of 16 bytes.
Status check_alignment(const char* name, const ProgramBytes& tensor, const ProgramCounts& counts);

// The same for all tensors of checkpoints, whose wire names `prefix` precedes, and the rows of their factors; and for
// those of windows, but for GDN's decay, a number a program.
Status check_checkpoint(const char* prefix, const CheckpointView& checkpoint, const ProgramCounts& counts,
                        int32_t rank);
Status check_window(const WindowView& window, const ProgramCounts& counts);

// The kernels count programs in 32 bits.
Status check_programs(const char* verb, int64_t programs);

inline Decay decay_of(const Geometry& geometry) {
  return geometry.gate == Gate::kGdn ? Decay::kByHead : Decay::kByChannel;
}

// Writes kCodes to kValueFactor, and the rest of the state's tensors.
void set_checkpoint(const CheckpointView& checkpoint, ProgramBytes* tensor);
void set_window(const WindowView& window, Decay decay, ProgramBytes* tensor);
FactorRows factor_rows(const CheckpointView& checkpoint);

}  // namespace leapquant::cuda
