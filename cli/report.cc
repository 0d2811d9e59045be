// SPDX-License-Identifier: Apache-2.0
//
// leapquant report: the main job on the published workloads, in three tables: accuracy, speed, memory.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/runs.h"
#include "command.h"
#include "failure.h"
#include "judge/verify.h"
#include "progress.h"
#include "speed_table.h"

namespace leapquant::cli {
namespace {

constexpr judge::Family kFamilies[] = {judge::Family::kStructured, judge::Family::kSecond, judge::Family::kRandom,
                                       judge::Family::kTrained};

struct ReportOptions {
  bool all = false;
  std::string backend;
};

std::vector<int64_t> batches_of(const ReportOptions& options) {
  if (options.all) return {16, 32, 64, 128, 256, 512};
  return {16, 32};
}

struct Accuracy {
  judge::Family family;
  int64_t batch;
  judge::Judgement judgement;
};

std::vector<Accuracy> measure_accuracy(const Context& context, const std::vector<int64_t>& batches) {
  std::vector<Accuracy> rows;
  Progress progress("accuracy");
  // The work of a row grows with its batch.
  int64_t total = 0;
  for (const int64_t batch : batches) total += batch * std::ssize(kFamilies);
  int64_t done = 0;
  for (const judge::Family family : kFamilies) {
    for (const int64_t batch : batches) {
      progress.update(static_cast<double>(done) / static_cast<double>(total),
                      fmt::format("{}, batch {}", judge::family_name(family), batch));
      judge::FamilyRequest request;
      request.family = family;
      request.batch = batch;
      rows.push_back({family, batch, input_or_fail(judge::verify_flush(context, request))});
      done += batch;
    }
  }
  return rows;
}

// True when every program keeps its bound.
bool print_accuracy(const std::vector<Accuracy>& rows) {
  fmt::print("ACCURACY  error of the decoded state over the fp32 reference's; the bound is 1.01 for every program\n\n");
  fmt::print("{:<11} {:>5} {:>9} | {:>13} {:>14} {:>10} {:>7} | {}\n", "family", "batch", "programs", "worst program",
             "batch-averaged", "over bound", "finite", "verdict");
  bool pass = true;
  for (const Accuracy& row : rows) {
    const judge::Judgement& j = row.judgement;
    pass = pass && j.passes();
    fmt::print("{:<11} {:>5} {:>9} | {:>13.5f} {:>14.5f} {:>10} {:>7} | {}\n", judge::family_name(row.family),
               row.batch, j.programs, j.worst_ratio, j.averaged_ratio, j.over, j.finite ? "yes" : "NO",
               j.passes() ? "pass" : "FAIL");
  }
  return pass;
}

void report_speed(const ReportOptions& options, const std::vector<int64_t>& batches) {
  bench::FlushRuns runs{.backend = options.backend, .threads = {}, .cases = {}};
  for (const int64_t batch : batches) {
    bench::FlushCase flush_case;
    flush_case.batch = batch;
    runs.cases.push_back(flush_case);
  }
  bench::FlushRecord record;
  {
    Progress progress("speed");
    record = bench::run_flushes(runs, [&](double share) { progress.update(share, "flush, all programs due"); });
  }
  fmt::print("\nSPEED  flush in place, all programs due\n\n");
  print_speed_table(record);
}

void print_memory() {
  const lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  fmt::print("\nMEMORY  bytes of a slot ({} heads, rank {})\n\n", geometry.num_heads, geometry.rank);
  fmt::print("{:<22} {:>12} {:>10}\n", "state kept as", "bytes", "of fp32");
  lq_pool_sizes compact{};
  lq_pool_sizes padded{};
  check(lq_pool_size(&geometry, LQ_LAYOUT_COMPACT, 1, &compact));
  check(lq_pool_size(&geometry, LQ_LAYOUT_PADDED, 1, &padded));
  const auto row = [&](const char* what, int64_t bytes) {
    fmt::print("{:<22} {:>12} {:>8.1f} %\n", what, bytes,
               100.0 * static_cast<double>(bytes) / static_cast<double>(compact.fp32_bytes_per_slot));
  };
  row("fp32", compact.fp32_bytes_per_slot);
  row("bf16", compact.fp32_bytes_per_slot / 2);
  row("checkpoint, compact", compact.checkpoint_bytes_per_slot);
  row("  with its window", compact.checkpoint_bytes_per_slot + compact.window_bytes_per_slot);
  row("checkpoint, padded", padded.checkpoint_bytes_per_slot);
  row("  with its window", padded.checkpoint_bytes_per_slot + padded.window_bytes_per_slot);
  fmt::print("\nThe padded layout is the published one: it saves traffic, and no memory.\n");
}

void report(const ReportOptions& options) {
  const std::vector<int64_t> batches = batches_of(options);
  bool pass = false;
  {
    const Context context(options.backend);
    pass = print_accuracy(measure_accuracy(context, batches));
  }
  report_speed(options, batches);
  print_memory();
  if (!pass) throw Exit{kExitOverBound};
}

constexpr const char* kReportFooter = R"(
Flushes pools of the published workloads (32 heads, rank 4) in four input families and judges every program.

Examples:
  leapquant report
  leapquant report --all)";

}  // namespace

void register_report(CLI::App& app) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* const command = app.add_subcommand("report", "Accuracy, speed and memory on the published workloads");
  command->add_flag("--all", options->all, "All six published batch sizes instead of 16 and 32");
  command->add_option("--backend", options->backend, "Backend; default: the build's first");
  command->footer(kReportFooter);
  command->callback([options] { report(*options); });
}

}  // namespace leapquant::cli
