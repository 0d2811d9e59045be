// SPDX-License-Identifier: Apache-2.0
//
// What the kernels are given that import and export dense states.
#pragma once

#include <cstdint>

#include "cuda/common/program.h"
#include "cuda/slots/config.h"
#include "plan/error_word.h"

namespace leapquant::cuda::state {

inline constexpr int kImportThreads = kDim;      // a thread owns a row of the state, and a column
inline constexpr int kExportThreads = 2 * kDim;  // a thread owns half of a column, or of a row

// Further tensors of a pool. Items of all of them are slots.
enum StateTensor { kFillCount = kStateTensors, kTensorCount };

// Dense states: items are batch positions. A program's elements lie without gaps.
struct States {
  ProgramBytes tensor;
  bool by_key;  // [K, V]
  bool narrow;  // bf16; only on the way in
};

struct StateArguments {
  ProgramBytes tensor[kTensorCount];
  FactorRows factor_row;
  States states;
  const int32_t* slot_index;  // [batch]
  int64_t num_slots;
  ErrorWord* errors;
  uint32_t programs;  // batch x heads
  uint32_t heads;
  uint32_t rank;
  Decay decay;
};

struct ImportArguments {
  StateArguments state;
  const float* start_basis;  // [V, R]
  ProgramBytes first_entry;  // counters by position and head; without a base all are 0
  slots::Parts parts;        // of which the window becomes that of a new slot
};

}  // namespace leapquant::cuda::state
