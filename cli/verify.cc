// SPDX-License-Identifier: Apache-2.0
//
// leapquant verify: flush the input families on a backend and judge every program.
#include "judge/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "command.h"
#include "failure.h"
#include "json_output.h"
#include "verify.h"

namespace leapquant::cli {
namespace {

struct Row {
  judge::Family family;
  int64_t batch;
  judge::Judgement judgement;
};

// The published families, and the recorded one where there is a recording.
std::vector<std::string> default_families(Gate gate) {
  if (gate == Gate::kGdn) return {"structured", "second", "random"};
  return {"structured", "second", "random", "trained"};
}

const char* verdict(const judge::Judgement& judgement) { return judgement.passes() ? "pass" : "FAIL"; }

void print_header() {
  fmt::print("{:<11} {:>5} {:>5} {:>4} {:>8}  {:>11} {:>9} {:>5}  {:<6}  {}\n", "family", "batch", "heads", "rank",
             "programs", "worst ratio", "averaged", "over", "finite", "verdict");
}

void print_row(const Row& row, const Geometry& geometry) {
  const judge::Judgement& j = row.judgement;
  fmt::print("{:<11} {:>5} {:>5} {:>4} {:>8}  {:>11.6f} {:>9.6f} {:>5}  {:<6}  {}\n", judge::family_name(row.family),
             row.batch, geometry.num_heads, geometry.rank, j.programs, j.worst_ratio, j.averaged_ratio, j.over,
             j.finite ? "yes" : "no", verdict(j));
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const Row& row, const Geometry& geometry) {
  const judge::Judgement& j = row.judgement;
  return {{"family", judge::family_name(row.family)},
          {"batch", row.batch},
          {"heads", geometry.num_heads},
          {"rank", geometry.rank},
          {"programs", j.programs},
          {"worst_ratio", j.worst_ratio},
          {"averaged_ratio", j.averaged_ratio},
          {"over", j.over},
          {"finite", j.finite},
          {"verdict", j.passes() ? "pass" : "fail"},
          {"worst_absolute", j.worst_absolute},
          {"worst_program", j.worst_program},
          {"worst_seed", j.worst_seed},
          {"averaged_over", j.averaged_over}};
}

judge::Judgement total_of(const std::vector<Row>& rows) {
  judge::Judgement total;
  for (const Row& row : rows) judge::include(total, row.judgement);
  return total;
}

nlohmann::ordered_json to_json(const VerifyOptions& options, const lq_context_info& context, const Geometry& geometry,
                               int64_t seeds, const std::vector<Row>& rows) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Row& row : rows) results.push_back(to_json(row, geometry));
  const judge::Judgement total = total_of(rows);
  return {{"op", "flush"},
          {"backend", context.backend},
          {"gate", gate_name(geometry.gate)},
          {"target", context.target},
          {"seed", options.seed},
          {"seeds", seeds},
          {"programs", total.programs},
          {"over", total.over},
          {"worst_ratio", total.worst_ratio},
          {"results", results}};
}

void print_total(const std::vector<Row>& rows, int64_t seeds) {
  const judge::Judgement total = total_of(rows);
  fmt::print("{} programs of {} {}: {} over the bound, worst ratio {:.6f}, averaged {:.6f}\n", total.programs, seeds,
             seeds == 1 ? "seed" : "seeds", total.over, total.worst_ratio, total.averaged_ratio);
}

// One family and batch size, over all seeds.
Row verify_row(const Context& context, const VerifyOptions& options, const judge::FamilyRequest& first, int64_t seeds) {
  Row row{first.family, first.batch, {}};
  judge::FamilyRequest request = first;
  for (int64_t n = 0; n < seeds; ++n) {
    request.seed = options.seed + static_cast<uint64_t>(n);
    judge::include(row.judgement, input_or_fail(judge::verify_flush(context, request)));
  }
  return row;
}

void verify_flush(const VerifyOptions& options) {
  const Geometry geometry = requested_geometry(options);
  const std::vector<int64_t> batches = batches_or(options.definition, options.batches);
  std::vector<judge::Family> families;
  for (const std::string& name : families_or(options, default_families(geometry.gate))) {
    families.push_back(input_or_fail(judge::parse_family(name)));
  }
  const Context context = make_context(options);
  context.require(judge::public_geometry(geometry));
  const int64_t items = std::accumulate(batches.begin(), batches.end(), int64_t{0});
  const int64_t seeds = seeds_of(options, std::ssize(families) * items * geometry.num_heads);

  const bool table = options.json != "-";  // stdout holds one of the two
  std::vector<Row> rows;
  if (table) print_header();
  for (const judge::Family family : families) {
    for (const int64_t batch : batches) {
      const judge::FamilyRequest request{geometry, family, batch, options.seed, options.threads, options.data};
      rows.push_back(verify_row(context, options, request, seeds));
      if (table) print_row(rows.back(), geometry);
    }
  }
  if (table) print_total(rows, seeds);
  if (!options.json.empty()) write_json(options.json, to_json(options, context.info(), geometry, seeds, rows));
  const bool pass = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.judgement.passes(); });
  if (!pass) throw Exit{kExitOverBound};
}

void verify(const VerifyOptions& options) { options.op == "step" ? verify_step(options) : verify_flush(options); }

constexpr const char* kVerifyFooter = R"(
A program of the flush passes when the error of its decoded state is at most 1.01 times the reference's, or, where the reference is
almost exact, at most 0.1 % of the state's mean magnitude. "worst ratio" is the largest of the programs, "averaged" that
of errors averaged over the batch, as published; "over" counts programs beyond the bound, and decides. A ratio of 0
means that no program came under the relative bound. With --programs a row holds its programs of all seeds: --seed and
those that follow it.

A program of the step passes when every element of every result is as near to the formula in double as its format
allows, and 1e-5 of the terms' magnitude: the columns show the largest share of that 1e-5, 1 being the bound.

Examples:
  leapquant verify
  leapquant verify --op step
  leapquant verify --op step --gate-function given --heads 12 --rank 8 --batch 16
  leapquant verify --op step --gate gdn --heads 32 --key-heads 16
  leapquant verify --batch 16 --family structured,trained
  leapquant verify --programs 1000000 --batch 64 --family structured,second,random,trained,policy
  leapquant verify --backend ref --heads 12 --rank 8 --batch 16,32 --json verify.json
  leapquant verify --definition definition.json --workloads workloads.jsonl)";

}  // namespace

void register_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* const command = app.add_subcommand("verify", "Judge the accuracy of a backend's flush or step");
  command->footer(kVerifyFooter);
  command->add_option("--backend", options->backend, "Backend to verify (see leapquant info); default: the first");
  CLI::Option* const op =
      command->add_option("--op", options->op, "Operation to verify")->check(CLI::IsMember({"flush", "step"}));
  command
      ->add_option("--gate-function", options->gate_functions,
                   "Gates of a step, separated by commas: softplus, bounded, given")
      ->delimiter(',');
  CLI::Option* const gate =
      command->add_option("--gate", options->gate, "Gate of the layer")->check(CLI::IsMember({"kda", "gdn"}));
  CLI::Option* const batch = command->add_option("--batch", options->batches, "Batch sizes, separated by commas")
                                 ->delimiter(',')
                                 ->check(CLI::Range(1, 1 << 20));
  CLI::Option* const heads = command->add_option("--heads", options->geometry.num_heads, "Heads of a sequence");
  CLI::Option* const key_heads =
      command->add_option("--key-heads", options->key_heads, "Key heads, which divide the heads; 0: as many (gdn)");
  CLI::Option* const rank = command->add_option("--rank", options->geometry.rank, "Rank-1 factors of a checkpoint");
  command
      ->add_option("--family", options->families,
                   "Input families, separated by commas. Flush: structured, second, random, trained (kda; these are "
                   "the default), policy; "
                   "step: structured, next, random (default)")
      ->delimiter(',');
  command->add_option("--seed", options->seed, "Seed of the inputs");
  command
      ->add_option("--programs", options->programs,
                   "Take further seeds until at least so many programs are judged; 0: one seed")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--threads", options->threads, "Threads; 0: as many as the process may use")
      ->check(CLI::Range(0, 1024));
  command->add_option("--json", options->json,
                      "Write the figures to this file; - for the standard output, without the table");
  add_definition_options(*command, options->definition, {op, gate, heads, key_heads, rank}, batch);
  command->add_option("--data", options->data, "Folder that holds kda_trajectory.safetensors");
  for (CLI::Option* const option : command->get_options()) option->capture_default_str();
  command->callback([options] { verify(*options); });
}

}  // namespace leapquant::cli
