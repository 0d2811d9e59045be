// SPDX-License-Identifier: Apache-2.0
//
// leapquant bench: time the in-place flush against the machine's limits, measured in the same run.
#include <memory>
#include <string>
#include <vector>

#include "bench/runs.h"
#include "command.h"
#include "definition_options.h"
#include "json_output.h"
#include "judge/verify.h"
#include "progress.h"
#include "speed_table.h"

namespace leapquant::cli {
namespace {

struct BenchOptions {
  std::string backend;
  std::vector<int64_t> batches = {4, 512};
  std::vector<int32_t> threads = {1, 0};
  std::vector<std::string> due = {"all", "1/16", "none"};
  std::vector<std::string> layouts = {"compact"};
  Geometry geometry;
  DefinitionOptions definition;
  std::string json;
};

bench::Due parse_due(const std::string& name) {
  if (name == "all") return bench::Due::kAll;
  return name == "none" ? bench::Due::kNone : bench::Due::kSixteenth;
}

std::vector<bench::FlushCase> cases_of(const BenchOptions& options) {
  Geometry geometry = options.geometry;
  geometry.num_key_heads = geometry.num_heads;
  geometry = geometry_or(options.definition, geometry);
  std::vector<bench::FlushCase> cases;
  for (const int64_t batch : batches_or(options.definition, options.batches)) {
    for (const std::string& layout : options.layouts) {
      for (const std::string& due : options.due) {
        cases.push_back({.geometry = judge::public_geometry(geometry),
                         .layout = layout == "padded" ? LQ_LAYOUT_PADDED : LQ_LAYOUT_COMPACT,
                         .batch = batch,
                         .due = parse_due(due)});
      }
    }
  }
  return cases;
}

void bench_flush(const BenchOptions& options) {
  bench::FlushRecord record;
  {
    Progress progress("bench");
    record = bench::run_flushes({options.backend, options.threads, cases_of(options)},
                                [&](double share) { progress.update(share, "flush"); });
  }
  if (options.json != "-") print_speed_table(record);  // stdout holds one of the two
  if (!options.json.empty()) write_json(options.json, bench::to_json(record));
}

constexpr const char* kFooter = R"(
"of madds" and "of bytes" are the shares of the measured limits: the products' multiply-adds, and the bytes of the due
programs when the pool is larger than the last-level cache.

Examples:
  leapquant bench
  leapquant bench --batch 512 --due all --threads 1,2 --json flush.json
  leapquant bench --definition definition.json --workloads workloads.jsonl
  LQ_CPU_TARGET=avx2 leapquant bench --batch 4 --due all)";

}  // namespace

void register_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* const command = app.add_subcommand("bench", "Time the flush against the machine's limits");
  command->add_option("--backend", options->backend, "Backend; default: the build's first");
  CLI::Option* const batch = command->add_option("--batch", options->batches, "Batch sizes, separated by commas")
                                 ->delimiter(',')
                                 ->check(CLI::Range(1, 1 << 20))
                                 ->capture_default_str();
  command->add_option("--threads", options->threads, "Thread counts; 0: as many as the process may use")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_option("--due", options->due, "Shares of the programs that are due: all, 1/16, none")
      ->delimiter(',')
      ->check(CLI::IsMember({"all", "1/16", "none"}))
      ->capture_default_str();
  command->add_option("--layout", options->layouts, "Pool layouts: compact, padded")
      ->delimiter(',')
      ->check(CLI::IsMember({"compact", "padded"}))
      ->capture_default_str();
  CLI::Option* const heads =
      command->add_option("--heads", options->geometry.num_heads, "Heads of a sequence")->capture_default_str();
  CLI::Option* const rank =
      command->add_option("--rank", options->geometry.rank, "Rank-1 factors of a checkpoint")->capture_default_str();
  add_definition_options(*command, options->definition, {heads, rank}, batch);
  command->add_option("--json", options->json,
                      "Write the record to this file; - for the standard output, without the table");
  command->footer(kFooter);
  command->callback([options] { bench_flush(*options); });
}

}  // namespace leapquant::cli
