// SPDX-License-Identifier: Apache-2.0
#include "speed_table.h"

#include <fmt/format.h>

namespace leapquant::cli {

void print_speed_table(const bench::FlushRecord& record) {
  fmt::print("backend {}, {}, on {}\n", record.backend, record.target, record.device);
  for (const auto& [threads, limits] : record.limits) {
    fmt::print("limits on {} thread{}: {:.1f} G multiply-adds/s, {:.1f} GB/s read + written\n", threads,
               threads == 1 ? "" : "s", limits.multiply_adds_per_s * 1e-9, limits.memory_bytes_per_s * 1e-9);
  }
  fmt::print("scalar reference, 1 thread: {:.1f} us a program\n\n", record.reference_us_per_program);
  fmt::print("{:>5} {:>5} {:>4} {:>7} {:>4} {:>7} | {:>11} {:>11} {:>11} | {:>10} {:>10} {:>8} {:>7} {:>8} {:>8}\n",
             "batch", "heads", "rank", "layout", "due", "threads", "median us", "min us", "max us", "programs/s",
             "us/program", "vs ref", "GB/s", "of madds", "of bytes");
  for (const bench::FlushResult& result : record.results) {
    const bench::FlushTiming& timing = result.timing;
    fmt::print("{:>5} {:>5} {:>4} {:>7} {:>4} {:>7} | {:>11.1f} {:>11.1f} {:>11.1f} | ", result.flush_case.batch,
               result.flush_case.geometry.num_heads, result.flush_case.geometry.rank,
               result.flush_case.layout == LQ_LAYOUT_PADDED ? "padded" : "compact",
               bench::due_name(result.flush_case.due), result.threads, timing.median_us, timing.min_us, timing.max_us);
    if (timing.due_programs == 0) {
      fmt::print("{:>10} {:>10} {:>8} {:>7} {:>8} {:>8}\n", "-", "-", "-", "-", "-", "-");
      continue;
    }
    const double per_program = timing.median_us / static_cast<double>(timing.due_programs);
    fmt::print("{:>10.0f} {:>10.2f} {:>7.1f}x {:>7.2f} {:>6.1f} % {:>8}\n", timing.programs_per_s(), per_program,
               record.reference_us_per_program / per_program,
               static_cast<double>(timing.bytes) / timing.median_us * 1e-3,
               result.limit.multiply_add_us / timing.median_us * 100,
               result.limit.memory_us > 0 ? fmt::format("{:.1f} %", result.limit.memory_us / timing.median_us * 100)
                                          : "cached");
  }
}

}  // namespace leapquant::cli
