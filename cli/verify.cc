// SPDX-License-Identifier: Apache-2.0
//
// leapquant verify: flush the input families on a backend and judge every program.
#include "judge/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "definition_options.h"
#include "failure.h"
#include "json_output.h"

namespace leapquant::cli {
namespace {

struct VerifyOptions {
  std::string backend;
  std::string gate = "kda";
  std::vector<int64_t> batches = {16, 32, 64, 128, 256, 512};
  Geometry geometry;
  std::vector<std::string> families = {"structured", "second", "random", "trained"};
  uint64_t seed = 0;
  int threads = 0;
  std::string json;
  DefinitionOptions definition;
  std::string data;
};

struct Row {
  judge::Family family;
  int64_t batch;
  judge::Judgement judgement;
};

Geometry requested_geometry(const VerifyOptions& options) {
  Geometry geometry = options.geometry;
  geometry.gate = options.gate == "gdn" ? Gate::kGdn : Gate::kKda;
  geometry.num_key_heads = geometry.num_heads;
  return geometry_or(options.definition, geometry);
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
          {"averaged_over", j.averaged_over}};
}

nlohmann::ordered_json to_json(const VerifyOptions& options, const lq_context_info& context, const Geometry& geometry,
                               const std::vector<Row>& rows) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Row& row : rows) results.push_back(to_json(row, geometry));
  return {{"backend", context.backend},
          {"gate", gate_name(geometry.gate)},
          {"target", context.target},
          {"seed", options.seed},
          {"results", results}};
}

// The threads of the judge are free; those of a backend are its own limit, and the reference has one.
Context make_context(const VerifyOptions& options) {
  return Context(options.backend, options.backend == "ref" ? 0 : options.threads);
}

void verify(const VerifyOptions& options) {
  const Geometry geometry = requested_geometry(options);
  const std::vector<int64_t> batches = batches_or(options.definition, options.batches);
  std::vector<judge::Family> families;
  for (const std::string& name : options.families) families.push_back(input_or_fail(judge::parse_family(name)));
  const Context context = make_context(options);
  context.require(judge::public_geometry(geometry));

  const bool table = options.json != "-";  // stdout holds one of the two
  std::vector<Row> rows;
  if (table) print_header();
  for (const judge::Family family : families) {
    for (const int64_t batch : batches) {
      rows.push_back({family, batch,
                      input_or_fail(judge::verify_flush(
                          context, {geometry, family, batch, options.seed, options.threads, options.data}))});
      if (table) print_row(rows.back(), geometry);
    }
  }
  if (!options.json.empty()) write_json(options.json, to_json(options, context.info(), geometry, rows));
  const bool pass = std::all_of(rows.begin(), rows.end(), [](const Row& row) { return row.judgement.passes(); });
  if (!pass) throw Exit{kExitOverBound};
}

constexpr const char* kFooter = R"(
A program passes when the error of its decoded state is at most 1.01 times the reference's, or, where the reference is
almost exact, at most 0.1 % of the state's mean magnitude. "worst ratio" is the largest of the programs, "averaged" that
of errors averaged over the batch, as published; "over" counts programs beyond the bound, and decides. A ratio of 0
means that no program came under the relative bound.

Examples:
  leapquant verify
  leapquant verify --batch 16 --family structured,trained
  leapquant verify --backend ref --heads 12 --rank 8 --batch 16,32 --json verify.json
  leapquant verify --definition definition.json --workloads workloads.jsonl)";

}  // namespace

void register_verify(CLI::App& app) {
  auto options = std::make_shared<VerifyOptions>();
  CLI::App* const command = app.add_subcommand("verify", "Judge the accuracy of a backend's flush");
  command->footer(kFooter);
  command->add_option("--backend", options->backend, "Backend to verify (see leapquant info); default: the first");
  CLI::Option* const gate =
      command->add_option("--gate", options->gate, "Gate of the layer")->check(CLI::IsMember({"kda", "gdn"}));
  CLI::Option* const batch = command->add_option("--batch", options->batches, "Batch sizes, separated by commas")
                                 ->delimiter(',')
                                 ->check(CLI::Range(1, 1 << 20));
  CLI::Option* const heads = command->add_option("--heads", options->geometry.num_heads, "Heads of a sequence");
  CLI::Option* const rank = command->add_option("--rank", options->geometry.rank, "Rank-1 factors of a checkpoint");
  command
      ->add_option("--family", options->families,
                   "Input families, separated by commas: structured, second, random, trained, policy")
      ->delimiter(',');
  command->add_option("--seed", options->seed, "Seed of the inputs");
  command->add_option("--threads", options->threads, "Threads; 0: as many as the process may use")
      ->check(CLI::Range(0, 1024));
  command->add_option("--json", options->json,
                      "Write the figures to this file; - for the standard output, without the table");
  add_definition_options(*command, options->definition, {gate, heads, rank}, batch);
  command->add_option("--data", options->data, "Folder that holds kda_trajectory.safetensors");
  for (CLI::Option* const option : command->get_options()) option->capture_default_str();
  command->callback([options] { verify(*options); });
}

}  // namespace leapquant::cli
