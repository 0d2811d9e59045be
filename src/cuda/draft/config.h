// SPDX-License-Identifier: Apache-2.0
//
// What the kernels are given that draft tokens and commit them. A draft's record is that of core/draft_layout.h.
#pragma once

#include <cstdint>

#include "cuda/common/program.h"
#include "cuda/step/config.h"
#include "plan/error_word.h"

namespace leapquant::cuda::draft {

inline constexpr int kMostTokens = 8;
inline constexpr int kRoom = kEntries + kMostTokens;  // entries that a drafted token may attend to, and its own

// Blocks that share a multiprocessor, which bounds the registers of a thread.
inline constexpr int kBlocksPerMultiprocessor = 4;

// What a commit has still to do behind the flush.
enum class Stage : int32_t {
  kDone = 0,
  kFilled,  // the window was filled: the rest of the tokens go into the empty one
  kParked,  // the counter was set aside, so that the flush of the filled windows leaves this one alone
};

struct Header {
  int32_t tokens;
  int32_t entries;
  uint32_t nonfinite;
  Stage stage;
};

// Offsets in a record, in bytes.
struct RecordOffsets {
  uint32_t key;
  uint32_t update;
  uint32_t gate;
  uint32_t log_gate;
  uint32_t log_decay;
  uint32_t token_decay;
  uint32_t weight;
  uint32_t decay;
};

// Records of [batch, H] programs.
struct Records {
  char* base;
  int64_t bytes;  // of a record
  RecordOffsets offset;
};

// The step's slots, token and output, whose rows are position * tokens + t; its targets are the records.
struct DraftArguments {
  step::StepArguments step;
  Records records;
  uint32_t tokens;
};

struct CommitArguments {
  ProgramBytes tensor[step::kFillCount + 1];  // those of the window, and the counters; items are slots
  Records records;
  const int32_t* slot_index;  // [batch]
  const int32_t* accepted;    // [batch]
  int64_t num_slots;
  ErrorWord* errors;
  uint32_t programs;  // batch x heads
  uint32_t heads;
  int32_t tokens;
  Decay decay;
};

}  // namespace leapquant::cuda::draft
