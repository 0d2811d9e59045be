// SPDX-License-Identifier: Apache-2.0
//
// leapquant bench: time the in-place flush and step against the machine's limits, measured in the same run. On a CPU
// the step is timed as decoding in whole cycles (bench_decode.cc).
#include "bench.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bench/runs.h"
#include "command.h"
#include "json_output.h"
#include "judge/verify.h"
#include "progress.h"
#include "speed_table.h"

namespace leapquant::cli {
namespace {

bench::Due parse_due(const std::string& name) {
  if (name == "all") return bench::Due::kAll;
  return name == "none" ? bench::Due::kNone : bench::Due::kSixteenth;
}

bool runs_on_gpu(const BenchOptions& options) {
  for (const lq_backend_info& info : backends()) {
    if (info.name == options.backend) return info.device == LQ_DEVICE_CUDA;
  }
  return false;
}

// A CPU is timed within its caches and far beyond them, a GPU on the published batches.
std::vector<int64_t> default_batches(const BenchOptions& options) {
  if (runs_on_gpu(options)) return {16, 32, 64, 128, 256, 512};
  return {4, 512};
}

// Calls add(geometry, batch, layout) for all that the options name.
template <class Add>
void for_each_pool(const BenchOptions& options, const Add& add) {
  for (const Geometry& geometry : geometries_of(options)) {
    for (const int64_t batch : batches_of(options, geometry, default_batches(options))) {
      for (const std::string& layout : options.layouts) {
        add(judge::public_geometry(geometry), batch, layout == "padded" ? LQ_LAYOUT_PADDED : LQ_LAYOUT_COMPACT);
      }
    }
  }
}

std::vector<bench::FlushCase> flush_cases_of(const BenchOptions& options) {
  std::vector<bench::FlushCase> cases;
  for_each_pool(options, [&](const lq_geometry& geometry, int64_t batch, lq_layout layout) {
    for (const std::string& due : options.due) {
      cases.push_back({.geometry = geometry, .layout = layout, .batch = batch, .due = parse_due(due)});
    }
  });
  return cases;
}

// A step of half-full windows, and a whole cycle of steps and flushes.
std::vector<bench::StepCase> step_cases_of(const BenchOptions& options) {
  std::vector<bench::StepCase> cases;
  for_each_pool(options, [&](const lq_geometry& geometry, int64_t batch, lq_layout layout) {
    for (const bench::StepOp op : {bench::StepOp::kStep, bench::StepOp::kCycle}) {
      cases.push_back({.geometry = geometry, .layout = layout, .batch = batch, .op = op, .fill = geometry.window / 2});
    }
  });
  return cases;
}

template <class Record>
void show(const BenchOptions& options, const Record& record) {
  if (options.json != "-") print_speed_table(record);  // stdout holds one of the two
  if (!options.json.empty()) write_json(options.json, bench::to_json(record));
}

void bench_step(const BenchOptions& options) {
  bench::StepRecord record;
  {
    Progress progress("bench");
    record = bench::run_steps({options.backend, step_cases_of(options)},
                              [&](double share) { progress.update(share, "step"); });
  }
  show(options, record);
}

void bench_flush(const BenchOptions& options) {
  bench::FlushRecord record;
  {
    Progress progress("bench");
    record = bench::run_flushes({options.backend, options.threads, flush_cases_of(options)},
                                [&](double share) { progress.update(share, "flush"); });
  }
  show(options, record);
}

constexpr const char* kBenchFooter = R"(
On a CPU, "of madds" and "of bytes" are the shares of the measured limits: the products' multiply-adds, and the bytes of
the due programs when the pool is larger than the last-level cache. On a GPU, times are device times inside a CUDA graph
with nothing in the L2 cache, and "of stream" is the time to copy as many bytes, measured alike, over that of the flush.

--op step on a CPU times cycles of as many tokens as a window has entries, their flushes included and spread over the
tokens, against decoding with dense fp32 states, whose elements are read and written once a token, in the same instruction
set and on as many threads. "of read" is the time in which the machine reads the bytes of a token over the time it took. On a
GPU it times a step of half-full windows, against the time to read as many bytes, and a token of a whole cycle, in which
every program steps and a sixteenth of them is flushed.

Examples:
  leapquant bench
  leapquant bench --op step --threads 2 --json step.json
  leapquant bench --batch 512 --due all --threads 1,2 --json flush.json
  leapquant bench --definition definition.json --workloads workloads.jsonl
  leapquant bench --backend cuda --json cuda.json
  leapquant bench --backend cuda --op step
  leapquant bench --op step --gate gdn --heads 32 --key-heads 16
  leapquant bench --programs 8192 --heads 8,12,32 --rank 1,2,4,8 --layout compact,padded --due all
  LQ_CPU_TARGET=avx2 leapquant bench --batch 4 --due all)";

}  // namespace

std::vector<Geometry> geometries_of(const BenchOptions& options) {
  if (!options.definition.definition.empty()) return {geometry_or(options.definition, {})};
  std::vector<Geometry> geometries;
  for (const int32_t heads : options.heads) {
    for (const int32_t rank : options.ranks) {
      geometries.push_back({.gate = options.gate == "gdn" ? Gate::kGdn : Gate::kKda,
                            .num_heads = heads,
                            .num_key_heads = options.key_heads == 0 ? heads : options.key_heads,
                            .rank = rank});
    }
  }
  return geometries;
}

std::vector<int64_t> batches_of(const BenchOptions& options, const Geometry& geometry,
                                const std::vector<int64_t>& otherwise) {
  // Heads that are out of range are for the backend to refuse.
  const int64_t heads = std::max(1, geometry.num_heads);
  if (options.programs > 0) return {std::max<int64_t>(1, (options.programs + heads / 2) / heads)};
  return batches_or(options.definition, options.batches.empty() ? otherwise : options.batches);
}

void register_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* const command = app.add_subcommand("bench", "Time the flush or the step against the machine's limits");
  CLI::Option* const op = command->add_option("--op", options->op, "What is timed: flush, step")
                              ->check(CLI::IsMember({"flush", "step"}))
                              ->capture_default_str();
  command->add_option("--backend", options->backend, "Backend; default: the build's first");
  CLI::Option* const batch =
      command
          ->add_option(
              "--batch", options->batches,
              "Batch sizes, separated by commas; default: 4,512, or 16,32,64,128,256,512 on a GPU; 256 for a step")
          ->delimiter(',')
          ->check(CLI::Range(1, 1 << 20));
  CLI::Option* const programs =
      command
          ->add_option("--programs", options->programs,
                       "Instead of --batch: so many programs, whatever the heads, to the nearest batch")
          ->check(CLI::Range(1, 1 << 26))
          ->excludes(batch);
  command
      ->add_option("--threads", options->threads,
                   "Thread counts of a CPU; 0: as many as the process may use; default: 1,0")
      ->delimiter(',')
      ->check(CLI::Range(0, 1024));
  CLI::Option* const due =
      command->add_option("--due", options->due, "Shares of the programs that are due: all, 1/16, none")
          ->delimiter(',')
          ->check(CLI::IsMember({"all", "1/16", "none"}))
          ->capture_default_str();
  command->add_option("--layout", options->layouts, "Pool layouts: compact, padded")
      ->delimiter(',')
      ->check(CLI::IsMember({"compact", "padded"}))
      ->capture_default_str();
  CLI::Option* const gate = command->add_option("--gate", options->gate, "Gate of the layer")
                                ->check(CLI::IsMember({"kda", "gdn"}))
                                ->capture_default_str();
  CLI::Option* const heads = command->add_option("--heads", options->heads, "Heads of a sequence, separated by commas")
                                 ->delimiter(',')
                                 ->capture_default_str();
  CLI::Option* const key_heads =
      command->add_option("--key-heads", options->key_heads, "Key heads, which divide the heads; 0: as many (gdn)");
  CLI::Option* const rank =
      command->add_option("--rank", options->ranks, "Rank-1 factors of a checkpoint, separated by commas")
          ->delimiter(',')
          ->capture_default_str();
  add_definition_options(*command, options->definition, {gate, heads, key_heads, rank, programs}, batch);
  command->add_option("--json", options->json,
                      "Write the record to this file; - for the standard output, without the table");
  command->footer(kBenchFooter);
  command->callback([options, op, due] {
    if (options->op == "flush") return bench_flush(*options);
    // A step has the flushes of its cycle.
    if (due->count() != 0) throw CLI::ExcludesError(op->get_name() + " step", due->get_name());
    runs_on_gpu(*options) ? bench_step(*options) : bench_decode(*options);
  });
}

}  // namespace leapquant::cli
