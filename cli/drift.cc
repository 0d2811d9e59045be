// SPDX-License-Identifier: Apache-2.0
//
// leapquant drift: thousands of tokens of the recurrence, the state kept in different ways, against double.
#include "judge/drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/record.h"
#include "command.h"
#include "failure.h"
#include "json_output.h"
#include "progress.h"

namespace leapquant::cli {
namespace {

struct DriftOptions {
  judge::DriftRequest request;
  std::string backend;
  std::string gate = "kda";
  std::string json;
};

// The mean of the records between two shares of the run.
double mean_between(const std::vector<double>& values, double from, double to) {
  const auto count = static_cast<double>(values.size());
  const auto begin = std::min(values.size() - 1, static_cast<size_t>(from * count));
  const auto end = std::max(begin + 1, static_cast<size_t>(to * count));
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

void print_table(const judge::DriftReport& report) {
  fmt::print("{:<12} {:<10} {:>7} {:>12} {:>12} {:>12} {:>12}\n", "tokens", "state", "bytes", "state, early",
             "state, late", "out, early", "out, late");
  for (const judge::DriftProfile& profile : report.profiles) {
    for (const judge::DriftSeries& series : profile.series) {
      fmt::print("{:<12} {:<10} {:>7} {:>12.2e} {:>12.2e} {:>12.2e} {:>12.2e}\n", profile.name, series.state,
                 series.bytes_per_head, mean_between(series.state_error, 0.125, 0.25),
                 mean_between(series.state_error, 0.875, 1), mean_between(series.output_error, 0.125, 0.25),
                 mean_between(series.output_error, 0.875, 1));
    }
  }
}

nlohmann::ordered_json to_json(const judge::DriftProfile& profile) {
  nlohmann::ordered_json states = nlohmann::ordered_json::array();
  for (const judge::DriftSeries& series : profile.series) {
    states.push_back({{"state", series.state},
                      {"bytes_per_head", series.bytes_per_head},
                      {"state_error", series.state_error},
                      {"output_error", series.output_error}});
  }
  return {{"name", profile.name}, {"description", profile.description}, {"heads", profile.heads}, {"states", states}};
}

nlohmann::ordered_json to_json(const DriftOptions& options, const lq_context_info& context,
                               const judge::DriftReport& report) {
  nlohmann::ordered_json profiles = nlohmann::ordered_json::array();
  for (const judge::DriftProfile& profile : report.profiles) profiles.push_back(to_json(profile));
  const bench::Origin origin = bench::record_origin();
  return {{"op", "drift"},
          {"gate", options.gate},
          {"backend", context.backend},
          {"target", context.target},
          {"commit", origin.commit},
          {"date", origin.date},
          {"command", origin.command},
          {"seed", options.request.seed},
          {"tokens", options.request.tokens},
          {"interval", options.request.interval},
          {"positions", report.positions},
          {"profiles", profiles}};
}

void run_drift(const DriftOptions& options) {
  const Context context(options.backend);
  if (context.info().device.type != LQ_DEVICE_CPU) {
    throw Failure(kExitUsage, fmt::format("drift: expected a backend on host memory, got '{}'", options.backend));
  }
  judge::DriftReport report;
  {
    Progress progress("drift");
    report = input_or_fail(
        judge::measure_drift(context, options.request, [&](double share) { progress.update(share, "tokens"); }));
  }
  if (options.json != "-") print_table(report);  // stdout holds one of the two
  if (!options.json.empty()) write_json(options.json, to_json(options, context.info(), report));
}

constexpr const char* kDriftFooter = R"(
Errors are relative to the same recurrence in double: of the state, |S - S64| / |S64|; of the outputs, over the tokens
since the record before. "early" is the second eighth of the tokens, "late" the last: a state that drifts has a larger
error late. All outputs are rounded to bf16, which alone makes 1.6e-3.

Examples:
  leapquant drift
  leapquant drift --gate gdn
  leapquant drift --tokens 16384 --interval 256 --json drift.json
  python3 tools/plot_drift.py drift.json drift.svg)";

}  // namespace

void register_drift(CLI::App& app) {
  auto options = std::make_shared<DriftOptions>();
  CLI::App* const command = app.add_subcommand("drift", "How errors grow over thousands of tokens, state by state");
  command->add_option("--backend", options->backend, "Backend on host memory; default: the build's first");
  command->add_option("--gate", options->gate, "Gate of the layer")
      ->check(CLI::IsMember({"kda", "gdn"}))
      ->capture_default_str();
  command->add_option("--tokens", options->request.tokens, "Tokens to run")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--interval", options->request.interval, "Tokens between two records")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--seed", options->request.seed, "Seed of the tokens")->capture_default_str();
  command->add_option("--json", options->json,
                      "Write the record to this file; - for the standard output, without the table");
  command->footer(kDriftFooter);
  command->callback([options] {
    options->request.gate = options->gate == "gdn" ? Gate::kGdn : Gate::kKda;
    run_drift(*options);
  });
}

}  // namespace leapquant::cli
