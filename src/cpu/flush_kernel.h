// SPDX-License-Identifier: Apache-2.0
//
// What the CPU backend and its SIMD body agree on: sizes, scratch memory, and the table of compiled bodies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant::cpu {

inline constexpr size_t kValueDim = 128;
inline constexpr size_t kKeyDim = 128;
inline constexpr size_t kWindow = 16;
inline constexpr size_t kMaxRank = 8;
// Rows of the scratch state are a cache line further apart than their length: at 512 bytes, a power of two, the rows of
// one column would fall into an eighth of the sets of the first-level cache.
inline constexpr size_t kStateRow = kKeyDim + 16;
// The state is a product of this inner size at most, plus the codes: window entries and old factors.
inline constexpr size_t kMaxInner = kWindow + kMaxRank;

// Cache lines of the program that comes next, fetched little by little while the current one is computed: by the time
// it starts, its 32 KB are in the second-level cache.
class PrefetchQueue {
 public:
  static constexpr size_t kLine = 64;

  void clear() { count_ = 0; }
  void add(const void* data, size_t bytes) {
    range_[count_++] = {static_cast<const char*>(data), static_cast<const char*>(data) + bytes};
  }
  void fetch(size_t lines) {
    for (; lines != 0 && count_ != 0; --lines) {
      Range& last = range_[count_ - 1];
      __builtin_prefetch(last.next, 0, 2);
      last.next += kLine;
      if (last.next >= last.end) --count_;
    }
  }

 private:
  struct Range {
    const char* next;
    const char* end;
  };
  Range range_[4];
  size_t count_ = 0;
};

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

// An instruction set that was compiled in and that this machine has.
struct FlushTarget {
  std::string name;
  FlushKernel (*kernel)(int32_t rank);  // rank 1, 2, 4 or 8
};

// Usable targets, best first. Never empty.
std::vector<FlushTarget> flush_targets();

}  // namespace leapquant::cpu
