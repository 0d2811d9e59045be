// SPDX-License-Identifier: Apache-2.0
#include "bench/runs.h"

namespace leapquant::bench {
namespace {

double time_reference(const lq_geometry& geometry) {
  FlushCase flush_case;
  flush_case.geometry = geometry;
  flush_case.batch = 1;
  const FlushTiming timing = time_flush(Context("ref", 1), flush_case);
  return timing.median_us / static_cast<double>(timing.due_programs);
}

// A wrong request is to cost no time: everything that it names is looked at before anything is measured.
void check_runs(const FlushRuns& runs) {
  for (const int32_t threads : runs.threads) {
    const Context context(runs.backend, threads);
    for (const FlushCase& flush_case : runs.cases) context.require(flush_case.geometry);
  }
}

}  // namespace

FlushRecord run_flushes(const FlushRuns& runs, const std::function<void(double)>& progress) {
  check_runs(runs);
  FlushRecord record;
  record.device = processor_name();
  const double steps = static_cast<double>(runs.threads.size() * (runs.cases.size() + 1) + 1);
  double done = 0;
  const auto advance = [&] { progress(++done / steps); };
  if (!runs.cases.empty()) record.reference_us_per_program = time_reference(runs.cases.front().geometry);
  advance();
  for (const int32_t wanted : runs.threads) {
    const Context context(runs.backend, wanted);
    const lq_context_info info = context.info();
    record.backend = info.backend;
    record.target = info.target;
    const Limits limits = measure_limits(info.target, info.threads);
    record.limits.emplace_back(info.threads, limits);
    advance();
    for (const FlushCase& flush_case : runs.cases) {
      const FlushTiming timing = time_flush(context, flush_case);
      record.results.push_back({flush_case, info.threads, timing, flush_limit(flush_case, timing, limits)});
      advance();
    }
  }
  return record;
}

}  // namespace leapquant::bench
