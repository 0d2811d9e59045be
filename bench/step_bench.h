// SPDX-License-Identifier: Apache-2.0
//
// What timing a step gives.
#pragma once

#include <cstdint>

#include "bench/spread.h"
#include "bench/step_case.h"

namespace leapquant::bench {

struct StepTiming {
  Spread us;  // of a step, or of a token of a cycle
  int64_t programs = 0;
  int64_t step_bytes = 0;   // read and written by it; in a cycle the mean of the tokens
  int64_t flush_bytes = 0;  // in a cycle: a token's share of the flushes
};

struct StepResult {
  StepCase step_case;
  StepTiming timing;
  double step_stream_us = 0;   // to read as many bytes as the step moves
  double flush_stream_us = 0;  // a token's share of copying those of the flushes

  double fraction_of_limit() const { return (step_stream_us + flush_stream_us) / timing.us.median; }
};

}  // namespace leapquant::bench
