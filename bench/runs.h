// SPDX-License-Identifier: Apache-2.0
//
// Runs a set of cases and collects them, with the machine's limits, in one record.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/record.h"

namespace leapquant::bench {

struct FlushRuns {
  std::string backend;           // empty: the build's first
  std::vector<int32_t> threads;  // a thread count each; 0 is what the backend chooses. None: 1 and 0. GPUs take none
  std::vector<FlushCase> cases;
};

// Runs every case with every thread count. `progress` is called after each piece of work with the share done, in [0,
// 1].
FlushRecord run_flushes(const FlushRuns& runs, const std::function<void(double)>& progress);

struct StepRuns {
  std::string backend;  // one on a GPU
  std::vector<StepCase> cases;
};
StepRecord run_steps(const StepRuns& runs, const std::function<void(double)>& progress);

}  // namespace leapquant::bench
