// SPDX-License-Identifier: Apache-2.0
//
// A benchmark run as one JSON record. Its fields keep their names and meanings; new ones may be added.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/flush_bench.h"

namespace leapquant::bench {

// One case with its figures.
struct FlushResult {
  FlushCase flush_case;
  int32_t threads = 1;
  FlushTiming timing;
  FlushLimit limit;

  double fraction_of_limit() const { return timing.due_programs == 0 ? 0.0 : limit.us() / timing.median_us; }
};

struct FlushRecord {
  std::string backend;
  std::string target;
  std::string device;
  std::vector<std::pair<int32_t, Limits>> limits;  // by thread count
  double reference_us_per_program = 0;             // the scalar reference, on one thread, in the same run
  std::vector<FlushResult> results;
};

nlohmann::ordered_json to_json(const FlushRecord& record);

}  // namespace leapquant::bench
