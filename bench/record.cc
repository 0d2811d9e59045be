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

Json result_json(const StepResult& result) {
  const StepCase& step_case = result.step_case;
  Json json = {{"op", step_op_name(step_case.op)},
               {"gate", step_case.geometry.gate == LQ_GATE_KDA ? "kda" : "gdn"},
               {"batch", step_case.batch},
               {"heads", step_case.geometry.num_heads},
               {"key_heads", step_case.geometry.num_key_heads},
               {"rank", step_case.geometry.rank},
               {"layout", step_case.layout == LQ_LAYOUT_PADDED ? "padded" : "compact"},
               {"programs", result.timing.programs},
               {"median_us", result.timing.us.median},
               {"min_us", result.timing.us.min},
               {"max_us", result.timing.us.max},
               {"step_bytes", result.timing.step_bytes},
               {"fraction_of_limit", result.fraction_of_limit()},
               {"step_stream_us", result.step_stream_us}};
  if (step_case.op == StepOp::kStep) {
    json["fill"] = step_case.fill;
  } else {
    json["flush_bytes"] = result.timing.flush_bytes;
    json["flush_stream_us"] = result.flush_stream_us;
  }
  return json;
}

// The best of the streams of the steps: each result is held against the one of its own size.
Json gpu_limits_json(const StepRecord& record) {
  double bytes_per_s = 0;
  for (const StepResult& result : record.results) {
    bytes_per_s = std::max(bytes_per_s, static_cast<double>(result.timing.step_bytes) / (result.step_stream_us * 1e-6));
  }
  return {{"read_bytes_per_s", bytes_per_s}, {"last_level_cache_bytes", record.gpu->l2_cache_bytes}};
}

Json head_json(const RecordHead& record) {
  Json json = {{"backend", record.backend}, {"target", record.target}, {"device", record.device},
               {"commit", record.commit},   {"date", record.date},     {"command", record.command}};
  if (record.gpu) json["gpu"] = gpu_json(*record.gpu);
  return json;
}

template <class Result>
Json results_json(const std::vector<Result>& results) {
  Json list = Json::array();
  for (const Result& result : results) list.push_back(result_json(result));
  return list;
}

}  // namespace

Origin record_origin() { return {LQ_COMMIT, utc_time(), command_line()}; }

RecordHead begin_record() {
  RecordHead record;
  static_cast<Origin&>(record) = record_origin();
  return record;
}

nlohmann::ordered_json to_json(const FlushRecord& record) {
  Json json = head_json(record);
  json["limits"] = record.gpu ? gpu_limits_json(record) : host_limits_json(record);
  json["results"] = results_json(record.results);
  return json;
}

nlohmann::ordered_json to_json(const StepRecord& record) {
  Json json = head_json(record);
  json["limits"] = gpu_limits_json(record);
  json["results"] = results_json(record.results);
  return json;
}

}  // namespace leapquant::bench
