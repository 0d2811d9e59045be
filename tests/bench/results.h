// SPDX-License-Identifier: Apache-2.0
//
// Made-up records.
#pragma once

#include "bench/record.h"

namespace leapquant::bench {

inline FlushResult made_up_result(Due due, int64_t due_programs) {
  return {.flush_case = {.batch = 16, .due = due},
          .timing = {.us = {.median = 40, .min = 39, .max = 44},
                     .due_programs = due_programs,
                     .bytes = due_programs * 1000,
                     .pool_bytes = 7}};
}

inline FlushRecord made_up_host_record() {
  FlushRecord record{begin_record(), {}, {}};
  record.backend = "cpu";
  record.target = "simd";
  record.device = "a processor";
  record.limits = {{2, {.multiply_adds_per_s = 2e9, .memory_bytes_per_s = 3e9, .last_level_cache_bytes = 5}}};
  record.results = {made_up_result(Due::kAll, 80), made_up_result(Due::kNone, 0)};
  for (FlushResult& result : record.results) result.reference_us_per_program = 25;
  record.results[0].limit = {.multiply_add_us = 20, .memory_us = 10};
  return record;
}

inline FlushRecord made_up_gpu_record() {
  FlushRecord record{begin_record(), {}, {}};
  record.backend = "cuda";
  record.target = "sm_00";
  record.device = "a device";
  record.gpu = {.name = "a device",
                .driver = "1.2.3",
                .driver_cuda = "4.5",
                .cuda_runtime = "4.4",
                .multiprocessors = 6,
                .sm_clock_mhz = 700,
                .memory_clock_mhz = 800,
                .l2_cache_bytes = 9};
  record.results = {made_up_result(Due::kAll, 80), made_up_result(Due::kNone, 0)};
  record.results[0].stream = {.kernel_us = 10, .memcpy_us = 12};
  record.results[0].limit.memory_us = 10;
  record.results[1].stream = StreamTiming{};
  return record;
}

inline StepResult made_up_step(StepOp op) {
  const int64_t flush_bytes = op == StepOp::kCycle ? 300 : 0;
  return {.step_case = {.op = op},
          .timing = {.us = {.median = 40, .min = 39, .max = 44},
                     .programs = 512,
                     .step_bytes = 80000,
                     .flush_bytes = flush_bytes},
          .step_stream_us = 20,
          .flush_stream_us = op == StepOp::kCycle ? 10.0 : 0.0};
}

inline StepRecord made_up_step_record() {
  StepRecord record{begin_record(), {made_up_step(StepOp::kStep), made_up_step(StepOp::kCycle)}};
  record.backend = "cuda";
  record.target = "sm_00";
  record.device = "a device";
  record.gpu = made_up_gpu_record().gpu;
  return record;
}

}  // namespace leapquant::bench
