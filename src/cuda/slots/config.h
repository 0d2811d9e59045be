// SPDX-License-Identifier: Apache-2.0
//
// What the kernels are given that reset or copy whole slots, and revise counters.
#pragma once

#include <cstdint>

#include "cuda/common/program.h"
#include "plan/error_word.h"

namespace leapquant::cuda::slots {

inline constexpr int kThreads = 256;

// The bytes of a program in one tensor, a multiple of 4, and what a new pool holds there. From 16 bytes on, programs
// begin at a multiple of 16.
struct Part {
  ProgramBytes tensor;
  int32_t bytes;
  uint32_t fresh;
};

enum PartName { kRegion, kWindowKey, kWindowUpdate, kWindowWeight, kWindowGate, kDecay, kPartCount };

struct Parts {
  Part of[kPartCount];
};

struct SlotArguments {
  Parts parts;
  ProgramBytes fill_count;
  const int32_t* source_index;  // [count]; null: reset
  const int32_t* target_index;  // [count]
  int64_t num_slots;
  uint32_t programs;  // count x heads
  uint32_t heads;
  ErrorWord* errors;
};

// What a flush of any fill makes of counters, around a flush of those that are due.
enum class CounterRule : int32_t {
  kDropFlushed,  // L over a window that a flush has emptied: 0
  kMarkDue,      // 1 to L - 1: L
  kEmpty,        // L: 0
};

struct CounterArguments {
  ProgramBytes fill_count;
  ProgramBytes window_weight;
  const int32_t* slot_index;  // [batch]
  int64_t num_slots;
  uint32_t programs;  // batch x heads
  uint32_t heads;
};

}  // namespace leapquant::cuda::slots
