// SPDX-License-Identifier: Apache-2.0
//
// What the flush kernel is given, and the sizes it is built for.
#pragma once

#include <cstdint>

namespace leapquant::cuda {

inline constexpr int kDim = 128;  // V and K
inline constexpr int kEntries = 16;
inline constexpr int kWarps = 8;  // warp w owns key columns 16 w to 16 w + 15 of all rows
inline constexpr int kThreads = 32 * kWarps;
inline constexpr int kBlocksPerSm = 2;
static_assert(kDim == 16 * kWarps);

// Programs that one pass over the counters looks at, and how many of them one block can be given.
inline constexpr int kScanRounds = 16;
inline constexpr int kScanChunk = kScanRounds * kThreads;
inline constexpr int kListLength = 512;
inline constexpr int kSmallestListGrid = kScanChunk / kListLength;

// A tensor of [items, heads] programs; strides in bytes.
struct ProgramBytes {
  char* base;
  int64_t item_stride;
  int64_t head_stride;
};

// The tensors of a flush. In place, targets are their sources.
enum Tensor {
  kCodes,
  kKeyScale,
  kValueScale,
  kKeyFactor,
  kValueFactor,
  kWindowKey,
  kWindowUpdate,
  kWindowWeight,
  kWindowGate,
  kLogDecay,
  kTargetCodes,
  kTargetKeyScale,
  kTargetValueScale,
  kTargetKeyFactor,
  kTargetValueFactor,
  kTensorCount
};

// Which programs are due, in place.
struct Selection {
  const int32_t* slot_index;  // [batch]; null in the functional form: every program is due
  ProgramBytes fill_count;
  int64_t num_slots;
  int64_t programs;  // batch x heads
  int32_t heads;
  int32_t* first_error_position;  // of ErrorWord
};

struct FlushArguments {
  ProgramBytes tensor[kTensorCount];
  int64_t key_factor_row;  // bytes from one factor to the next
  int64_t value_factor_row;
  int64_t target_key_factor_row;
  int64_t target_value_factor_row;
  const float* start_basis;  // [V, R]
  int32_t rank;
  Selection selection;
};

}  // namespace leapquant::cuda
