// SPDX-License-Identifier: Apache-2.0
//
// Times the in-place flush of a pool in host memory against the machine's limits.
#pragma once

#include <cstdint>

#include "bench/flush_case.h"
#include "bench/limits.h"
#include "bench/spread.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::bench {

struct FlushTiming {
  Spread us;
  int64_t due_programs = 0;
  int64_t bytes = 0;       // read and written by the flush: the contract's figure for each due program
  int64_t pool_bytes = 0;  // checkpoints and windows of the slots in the batch

  double programs_per_s() const { return static_cast<double>(due_programs) / (us.median * 1e-6); }
};

// Checkpoints and windows of a case's slots.
int64_t pool_bytes(const FlushCase& flush_case);

// Times flushes of one pool. Checkpoints and windows are put back between the timed calls, so that each does the
// same work.
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
