// SPDX-License-Identifier: Apache-2.0
//
// What the CPU backend and the SIMD body of the step agree on.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/draft_layout.h"
#include "core/geometry.h"
#include "core/program_view.h"
#include "core/token_view.h"
#include "cpu/dimensions.h"
#include "cpu/prefetch_queue.h"
#include "cpu/targets.h"

namespace leapquant::cpu {

// All products are taken with two vectors at once: kn and qn.
inline constexpr size_t kSides = 2;

// Scratch of one worker. All arrays start on a cache line.
struct alignas(64) StepWorkspace {
  float side[kSides][kKeyDim];            // kn, qn
  float decayed_side[kSides][kKeyDim];    // KDA: times exp(pcum'); later times s_k / 127 as well
  float entry_decay[kKeyDim];             // D_j, KDA
  float partial[kSides * kValueDim * 4];  // quarter sums of the codes' products
  float product[kSides * kValueDim];      // the codes' products
  PrefetchQueue upcoming;                 // the next program's lines
};

// Entries one after another, the oldest first.
struct EntryRun {
  size_t count;
  const Bfloat16* key;     // [count, K]
  const Bfloat16* update;  // [count, V]
  const Half* gate;        // [count, K] KDA
  const float* weight;     // [count]
};

// One program.
struct StepProgram {
  GateRule gate;
  size_t rank;
  CheckpointProgram checkpoint;
  EntryRun drafted;        // the newest entries, at most kMaxDraftTokens: those that the pool does not have yet
  EntryRun window;         // its occupied entries
  const float* log_decay;  // [K] before this token; KDA
  const float* decay;      // [1] before this token; GDN
  TokenProgram token;
  StepRows rows;
};

// T1 to T5, the weights aside: those are the caller's.
using StepKernel = StepOutcome (*)(const StepProgram& program, StepWorkspace& workspace);

StepKernel step_kernel_of(const Target& target, Gate gate);

}  // namespace leapquant::cpu
