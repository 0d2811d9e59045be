// SPDX-License-Identifier: Apache-2.0
#include "bench/record.h"

namespace leapquant::bench {
namespace {

using Json = nlohmann::ordered_json;

Json limits_json(const FlushRecord& record) {
  Json by_threads = Json::array();
  for (const auto& [threads, limits] : record.limits) {
    by_threads.push_back({{"threads", threads},
                          {"multiply_adds_per_s", limits.multiply_adds_per_s},
                          {"memory_bytes_per_s", limits.memory_bytes_per_s}});
  }
  const int64_t cache = record.limits.empty() ? 0 : record.limits.front().second.last_level_cache_bytes;
  return {{"by_threads", by_threads},
          {"last_level_cache_bytes", cache},
          {"reference_us_per_program", record.reference_us_per_program}};
}

Json result_json(const FlushResult& result) {
  const FlushCase& flush_case = result.flush_case;
  const FlushTiming& timing = result.timing;
  return {{"op", "flush"},
          {"gate", flush_case.geometry.gate == LQ_GATE_KDA ? "kda" : "gdn"},
          {"batch", flush_case.batch},
          {"heads", flush_case.geometry.num_heads},
          {"rank", flush_case.geometry.rank},
          {"layout", flush_case.layout == LQ_LAYOUT_PADDED ? "padded" : "compact"},
          {"due", due_name(flush_case.due)},
          {"threads", result.threads},
          {"median_us", timing.median_us},
          {"min_us", timing.min_us},
          {"max_us", timing.max_us},
          {"programs_per_s", timing.programs_per_s()},
          {"bytes", timing.bytes},
          {"fraction_of_limit", result.fraction_of_limit()},
          {"due_programs", timing.due_programs},
          {"pool_bytes", timing.pool_bytes},
          {"multiply_add_fraction", result.limit.multiply_add_us / timing.median_us},
          {"memory_fraction", result.limit.memory_us / timing.median_us}};
}

}  // namespace

nlohmann::ordered_json to_json(const FlushRecord& record) {
  Json results = Json::array();
  for (const FlushResult& result : record.results) results.push_back(result_json(result));
  return {{"backend", record.backend}, {"target", record.target},       {"device", record.device},
          {"commit", LQ_COMMIT},       {"limits", limits_json(record)}, {"results", results}};
}

}  // namespace leapquant::bench
