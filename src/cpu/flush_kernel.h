// SPDX-License-Identifier: Apache-2.0
//
// What the CPU backend and the SIMD body of the flush agree on: sizes and scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/geometry.h"
#include "core/program_view.h"
#include "cpu/dimensions.h"
#include "cpu/prefetch_queue.h"
#include "cpu/targets.h"

namespace leapquant::cpu {

// Rows of the scratch state are a cache line further apart than their length: at 512 bytes, a power of two, the rows of
// one column would fall into an eighth of the sets of the first-level cache.
inline constexpr size_t kStateRow = kKeyDim + 16;
// The state is a product of this inner size at most, plus the codes: window entries and old factors.
inline constexpr size_t kMaxInner = kWindow + kMaxRank;

// Lines that the flush of a program reads, the largest rank's factors included.
inline constexpr size_t kProgramLines = (kValueDim * kKeyDim + 1024 + 4096 + 3 * 4096 + 512) / PrefetchQueue::kLine;

// Scratch of one worker. All arrays start on a cache line.
struct alignas(64) FlushWorkspace {
  float state[kValueDim * kStateRow];       // S [V, kStateRow], later the residual E
  float left[kMaxInner * kValueDim];        // value side of the rebuild [inner, V]
  float right[kMaxInner * kKeyDim];         // key side of the rebuild, decayed [inner, K]
  float code_scale[kKeyDim];                // s_k / 127 · exp(pcum) or p
  float start[kMaxRank * kValueDim];        // start basis by columns [R, V], each scaled by a power of two
  float key_thin[kMaxRank * kKeyDim];       // P, then U, then the rounded u' [R, K]
  float value_thin[kMaxRank * kValueDim];   // Q, then the rounded q' [R, V]
  float partial[kMaxRank * kValueDim * 4];  // quarter sums of S P [R, V, 4]
  float column[kKeyDim];                    // column sums of |E|, then 1 / s_k
  PrefetchQueue upcoming;                   // the next program's lines
};

// The body compiled for one instruction set and one rank.
struct FlushKernel {
  // Fills workspace.start from `start_basis` [V, R]. Once per call, not per program.
  void (*prepare_start)(const float* start_basis, FlushWorkspace& workspace);
  // Steps 1 to 3 for one program. `target` may be `source`. False when the state was not finite.
  bool (*flush)(Gate gate, const CheckpointProgram& source, const WindowProgram& window,
                const CheckpointProgram& target, FlushWorkspace& workspace);
};

// The body for an instruction set and rank 1, 2, 4 or 8.
FlushKernel flush_kernel_of(const Target& target, int32_t rank);

}  // namespace leapquant::cpu
