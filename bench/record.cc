// SPDX-License-Identifier: Apache-2.0
#include "bench/record.h"

#include <algorithm>
#include <ctime>
#include <fstream>

namespace leapquant::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string utc_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[sizeof "2000-01-01T00:00:00Z"];
  return {text, std::strftime(text, sizeof text, "%FT%TZ", &parts)};
}

// The arguments of this process, the program's folder left out.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string line;
  for (std::string argument; std::getline(file, argument, '\0');) {
    line += line.empty() ? argument.substr(argument.rfind('/') + 1) : " " + argument;
  }
  return line;
}

Json host_limits_json(const FlushRecord& record) {
  Json by_threads = Json::array();
  for (const auto& [threads, limits] : record.limits) {
    by_threads.push_back({{"threads", threads},
                          {"multiply_adds_per_s", limits.multiply_adds_per_s},
                          {"memory_bytes_per_s", limits.memory_bytes_per_s}});
  }
  return {{"by_threads", by_threads},
          {"last_level_cache_bytes", record.limits.empty() ? 0 : record.limits.front().second.last_level_cache_bytes},
          {"reference_us_per_program", record.results.empty() ? 0 : record.results.front().reference_us_per_program}};
}

// The best of the streams: each result is held against the one of its own size.
Json gpu_limits_json(const FlushRecord& record) {
  double bytes_per_s = 0;
  for (const FlushResult& result : record.results) {
    if (result.limit.us() == 0) continue;
    bytes_per_s = std::max(bytes_per_s, static_cast<double>(result.timing.bytes) / (result.limit.us() * 1e-6));
  }
  return {{"memory_bytes_per_s", bytes_per_s}, {"last_level_cache_bytes", record.gpu->l2_cache_bytes}};
}

Json gpu_json(const GpuDescription& gpu) {
  return {{"driver", gpu.driver},
          {"driver_cuda", gpu.driver_cuda},
          {"cuda_runtime", gpu.cuda_runtime},
          {"multiprocessors", gpu.multiprocessors},
          {"sm_clock_mhz", gpu.sm_clock_mhz},
          {"memory_clock_mhz", gpu.memory_clock_mhz}};
}

Json result_json(const FlushResult& result) {
  const FlushCase& flush_case = result.flush_case;
  const FlushTiming& timing = result.timing;
  Json json = {{"op", "flush"},
               {"gate", flush_case.geometry.gate == LQ_GATE_KDA ? "kda" : "gdn"},
               {"batch", flush_case.batch},
               {"heads", flush_case.geometry.num_heads},
               {"rank", flush_case.geometry.rank},
               {"layout", flush_case.layout == LQ_LAYOUT_PADDED ? "padded" : "compact"},
               {"due", due_name(flush_case.due)},
               {"threads", result.threads},
               {"median_us", timing.us.median},
               {"min_us", timing.us.min},
               {"max_us", timing.us.max},
               {"programs_per_s", timing.programs_per_s()},
               {"bytes", timing.bytes},
               {"fraction_of_limit", result.fraction_of_limit()},
               {"due_programs", timing.due_programs},
               {"pool_bytes", timing.pool_bytes}};
  if (result.stream) {
    json["stream_us"] = result.stream->us();
    json["stream_kernel_us"] = result.stream->kernel_us;
    json["stream_memcpy_us"] = result.stream->memcpy_us;
  } else {
    json["multiply_add_fraction"] = result.limit.multiply_add_us / timing.us.median;
    json["memory_fraction"] = result.limit.memory_us / timing.us.median;
  }
  return json;
}

}  // namespace

Origin record_origin() { return {LQ_COMMIT, utc_time(), command_line()}; }

FlushRecord begin_record() {
  const Origin origin = record_origin();
  FlushRecord record;
  record.date = origin.date;
  record.command = origin.command;
  return record;
}

nlohmann::ordered_json to_json(const FlushRecord& record) {
  Json results = Json::array();
  for (const FlushResult& result : record.results) results.push_back(result_json(result));
  Json json = {{"backend", record.backend}, {"target", record.target}, {"device", record.device},
               {"commit", LQ_COMMIT},       {"date", record.date},     {"command", record.command}};
  if (record.gpu) json["gpu"] = gpu_json(*record.gpu);
  json["limits"] = record.gpu ? gpu_limits_json(record) : host_limits_json(record);
  json["results"] = results;
  return json;
}

}  // namespace leapquant::bench
