// SPDX-License-Identifier: Apache-2.0
//
// A benchmark run as one JSON record. Its fields keep their names and meanings; new ones may be added.
// docs/performance.md lists them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/flush_bench.h"
#include "bench/step_bench.h"

namespace leapquant::bench {

// Where a record comes from: the sources, the moment (UTC), and how the program was called.
struct Origin {
  std::string commit;
  std::string date;
  std::string command;
};
Origin record_origin();

// One case with its figures.
struct FlushResult {
  FlushCase flush_case;
  int32_t threads = 1;
  FlushTiming timing;
  FlushLimit limit;
  double reference_us_per_program = 0;  // the scalar reference at this rank, on one thread, in the same run; or 0
  std::optional<StreamTiming> stream;   // on a GPU: the streams behind `limit`

  double fraction_of_limit() const { return timing.due_programs == 0 ? 0.0 : limit.us() / timing.us.median; }
};

// What every record says of its run.
struct RecordHead : Origin {
  std::string backend;
  std::string target;
  std::string device;
  std::optional<GpuDescription> gpu;
};

struct FlushRecord : RecordHead {
  std::vector<std::pair<int32_t, Limits>> limits;  // by thread count; none on a GPU
  std::vector<FlushResult> results;
};

struct StepRecord : RecordHead {
  std::vector<StepResult> results;
};

// The head of a record of this moment and this process.
RecordHead begin_record();

nlohmann::ordered_json to_json(const FlushRecord& record);
nlohmann::ordered_json to_json(const StepRecord& record);

}  // namespace leapquant::bench
