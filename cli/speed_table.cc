// SPDX-License-Identifier: Apache-2.0
#include "speed_table.h"

#include <fmt/format.h>

#include <string>

namespace leapquant::cli {
namespace {

void print_host(const bench::FlushRecord& record) {
  for (const auto& [threads, limits] : record.limits) {
    fmt::print("limits on {} thread{}: {:.1f} G multiply-adds/s, {:.1f} GB/s read + written\n", threads,
               threads == 1 ? "" : "s", limits.multiply_adds_per_s * 1e-9, limits.memory_bytes_per_s * 1e-9);
  }
  if (record.results.empty()) return;
  fmt::print("scalar reference, 1 thread, rank {}: {:.1f} us a program\n",
             record.results.front().flush_case.geometry.rank, record.results.front().reference_us_per_program);
}

void print_gpu(const bench::GpuDescription& gpu) {
  fmt::print("{} multiprocessors, peak clocks {} MHz and {} MHz (memory); driver {}, CUDA {}\n", gpu.multiprocessors,
             gpu.sm_clock_mhz, gpu.memory_clock_mhz, gpu.driver, gpu.cuda_runtime);
}

const char* layout_text(lq_layout layout) { return layout == LQ_LAYOUT_PADDED ? "padded" : "compact"; }

void print_case(const bench::FlushResult& result) {
  const bench::FlushCase& c = result.flush_case;
  const bench::Spread& us = result.timing.us;
  fmt::print("{:>5} {:>5} {:>4} {:>7} {:>4} {:>7} | {:>11.1f} {:>11.1f} {:>11.1f} | ", c.batch, c.geometry.num_heads,
             c.geometry.rank, layout_text(c.layout), bench::due_name(c.due), result.threads, us.median, us.min, us.max);
}

double us_per_program(const bench::FlushTiming& timing) {
  return timing.us.median / static_cast<double>(timing.due_programs);
}

double gigabytes_per_s(const bench::FlushTiming& timing) {
  return static_cast<double>(timing.bytes) / timing.us.median * 1e-3;
}

void print_host_figures(const bench::FlushResult& result) {
  const bench::FlushTiming& timing = result.timing;
  if (timing.due_programs == 0) {
    fmt::print("{:>10} {:>10} {:>8} {:>7} {:>8} {:>8}\n", "-", "-", "-", "-", "-", "-");
    return;
  }
  const double per_program = us_per_program(timing);
  fmt::print(
      "{:>10.0f} {:>10.2f} {:>7.1f}x {:>7.2f} {:>6.1f} % {:>8}\n", timing.programs_per_s(), per_program,
      result.reference_us_per_program / per_program, gigabytes_per_s(timing),
      result.limit.multiply_add_us / timing.us.median * 100,
      result.limit.memory_us > 0 ? fmt::format("{:.1f} %", result.limit.memory_us / timing.us.median * 100) : "cached");
}

void print_gpu_figures(const bench::FlushResult& result) {
  const bench::FlushTiming& timing = result.timing;
  if (timing.due_programs == 0) {
    fmt::print("{:>10} {:>10} {:>7} {:>9} {:>9}\n", "-", "-", "-", "-", "-");
    return;
  }
  fmt::print("{:>10.0f} {:>10.4f} {:>7.0f} {:>9.1f} {:>7.1f} %\n", timing.programs_per_s(), us_per_program(timing),
             gigabytes_per_s(timing), result.stream->us(), result.fraction_of_limit() * 100);
}

void print_case(const bench::StepResult& result) {
  const bench::StepCase& c = result.step_case;
  const bench::StepTiming& timing = result.timing;
  const bool cycle = c.op == bench::StepOp::kCycle;
  fmt::print(
      "{:>5} {:>5} {:>4} {:>7} {:>5} {:>5} | {:>9.2f} {:>9.2f} {:>9.2f} | {:>10.3f} {:>7.0f} {:>9.2f} {:>9} {:>7.1f} "
      "%\n",
      c.batch, c.geometry.num_heads, c.geometry.rank, layout_text(c.layout), bench::step_op_name(c.op),
      cycle ? "all" : std::to_string(c.fill), timing.us.median, timing.us.min, timing.us.max,
      1e3 * timing.us.median / static_cast<double>(timing.programs),
      static_cast<double>(timing.step_bytes + timing.flush_bytes) / timing.us.median * 1e-3, result.step_stream_us,
      cycle ? fmt::format("{:.2f}", result.flush_stream_us) : "-", result.fraction_of_limit() * 100);
}

}  // namespace

void print_speed_table(const bench::FlushRecord& record) {
  fmt::print("backend {}, {}, on {}\n", record.backend, record.target, record.device);
  if (record.gpu) {
    print_gpu(*record.gpu);
    fmt::print(
        "device time of one flush of eight in a graph, each on slots of its own; the limit is a copy of its bytes\n");
  } else {
    print_host(record);
  }
  fmt::print("\n{:>5} {:>5} {:>4} {:>7} {:>4} {:>7} | {:>11} {:>11} {:>11} | {:>10} {:>10}", "batch", "heads", "rank",
             "layout", "due", "threads", "median us", "min us", "max us", "programs/s", "us/program");
  if (record.gpu) {
    fmt::print(" {:>7} {:>9} {:>9}\n", "GB/s", "stream us", "of stream");
  } else {
    fmt::print(" {:>8} {:>7} {:>8} {:>8}\n", "vs ref", "GB/s", "of madds", "of bytes");
  }
  for (const bench::FlushResult& result : record.results) {
    print_case(result);
    if (result.stream) {
      print_gpu_figures(result);
    } else {
      print_host_figures(result);
    }
  }
}

void print_speed_table(const bench::StepRecord& record) {
  fmt::print("backend {}, {}, on {}\n", record.backend, record.target, record.device);
  print_gpu(*record.gpu);
  fmt::print(
      "device time of one call of eight in a graph, each on slots of its own; step: every window at the same fill; "
      "cycle: a token of step and flush, all fills alike. The limit is to read the bytes of the step, and to copy "
      "those of the flushes\n");
  fmt::print("\n{:>5} {:>5} {:>4} {:>7} {:>5} {:>5} | {:>9} {:>9} {:>9} | {:>10} {:>7} {:>9} {:>9} {:>9}\n", "batch",
             "heads", "rank", "layout", "op", "fill", "median us", "min us", "max us", "ns/program", "GB/s", "read us",
             "copy us", "of limit");
  for (const bench::StepResult& result : record.results) print_case(result);
}

}  // namespace leapquant::cli
