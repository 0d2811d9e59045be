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
inline constexpr int kListLength = 1024;
inline constexpr int kSmallestListGrid = kScanChunk / kListLength;

// A tensor of [items, heads] programs; strides in bytes.
struct ProgramBytes {
  char* base;
  int64_t item_stride;
  int64_t head_stride;
};

struct CheckpointBytes {
  ProgramBytes codes;
  ProgramBytes key_scale;
  ProgramBytes value_scale;
  ProgramBytes key_factor;
  ProgramBytes value_factor;
  int64_t key_factor_row;
  int64_t value_factor_row;
};

struct FlushArguments {
  CheckpointBytes source;
  CheckpointBytes target;
  ProgramBytes window_key;
  ProgramBytes window_update;
  ProgramBytes window_weight;
  ProgramBytes window_gate;
  ProgramBytes log_decay;
  const float* start_basis;  // [V, R]
  int64_t programs;          // batch x heads
  int32_t heads;
  int32_t rank;
  // In place only; slot_index is null in the functional form.
  const int32_t* slot_index;  // [batch]
  ProgramBytes fill_count;
  int64_t num_slots;
  int32_t* first_error_position;  // of ErrorWord
};

}  // namespace leapquant::cuda
