// SPDX-License-Identifier: Apache-2.0
//
// Times the in-place flush of a pool against the machine's limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/limits.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::bench {

enum class Due { kAll, kSixteenth, kNone };
const char* due_name(Due due);  // "all", "1/16", "none"

struct FlushCase {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  lq_layout layout = LQ_LAYOUT_COMPACT;
  int64_t batch = 16;
  Due due = Due::kAll;
};

struct FlushTiming {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
  int64_t due_programs = 0;
  int64_t bytes = 0;       // read and written by the flush: the contract's figure for each due program
  int64_t pool_bytes = 0;  // checkpoints and windows of the slots in the batch

  double programs_per_s() const { return static_cast<double>(due_programs) / (median_us * 1e-6); }
};

// Bytes that the flush of one program reads and writes, its window reset included.
int64_t flush_program_bytes(const lq_geometry& geometry);

// Multiply-adds in the products of one program's flush: rebuild (L + R), three thin products and the residual (4 R),
// for each element of the state. Conversions, norms and scales are not counted.
int64_t flush_program_multiply_adds(const lq_geometry& geometry);

// Times flushes of one pool. Windows and counters are put back between the timed calls, so that each does the same
// work.
FlushTiming time_flush(const Context& context, const FlushCase& flush_case);

// The least time the machine could take: for the multiply-adds, and, when the pool does not fit in the last-level
// cache, for the bytes; in microseconds. The larger of the two is the limit.
struct FlushLimit {
  double multiply_add_us = 0;
  double memory_us = 0;  // 0 when the pool fits in the cache

  double us() const { return multiply_add_us > memory_us ? multiply_add_us : memory_us; }
};
FlushLimit flush_limit(const FlushCase& flush_case, const FlushTiming& timing, const Limits& limits);

}  // namespace leapquant::bench
