// SPDX-License-Identifier: Apache-2.0
//
// leapquant verify --op step: step the input families on a backend and judge every element.
#include "judge/verify_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
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

struct StepRow {
  judge::StepRequest request;
  judge::StepJudgement judgement;
};

// Calls `visit(n)` for the results that a gate has.
template <class Visit>
void for_each_output(Gate gate, Visit visit) {
  for (size_t n = 0; n < judge::kStepOutputCount; ++n) {
    if (judge::has_output(gate, static_cast<judge::StepOutput>(n))) visit(n);
  }
}

void print_header(Gate gate) {
  fmt::print("{:<11} {:<9} {:>5} {:>5} {:>4} {:>8} ", "family", "gate", "batch", "heads", "rank", "programs");
  for_each_output(gate, [](size_t n) { fmt::print(" {:>8}", judge::kStepOutputNames[n]); });
  fmt::print(" {:>5}  {:<6}  {}\n", "over", "finite", "verdict");
}

const char* verdict(const judge::StepJudgement& judgement) { return judgement.passes() ? "pass" : "FAIL"; }

void print_row(const StepRow& row) {
  const judge::StepRequest& r = row.request;
  fmt::print("{:<11} {:<9} {:>5} {:>5} {:>4} {:>8} ", judge::step_family_name(r.family),
             judge::gate_function_name(r.gate.function), r.batch, r.geometry.num_heads, r.geometry.rank,
             row.judgement.programs);
  for_each_output(r.geometry.gate, [&](size_t n) { fmt::print(" {:>8.4f}", row.judgement.worst[n]); });
  fmt::print(" {:>5}  {:<6}  {}\n", row.judgement.over, row.judgement.finite ? "yes" : "no", verdict(row.judgement));
  std::fflush(stdout);
}

nlohmann::ordered_json shares(Gate gate, const judge::StepJudgement& judgement) {
  nlohmann::ordered_json result;
  for_each_output(gate, [&](size_t n) { result[judge::kStepOutputNames[n]] = judgement.worst[n]; });
  return result;
}

nlohmann::ordered_json to_json(const StepRow& row) {
  const judge::StepJudgement& j = row.judgement;
  return {{"family", judge::step_family_name(row.request.family)},
          {"gate_function", judge::gate_function_name(row.request.gate.function)},
          {"batch", row.request.batch},
          {"heads", row.request.geometry.num_heads},
          {"key_heads", row.request.geometry.num_key_heads},
          {"rank", row.request.geometry.rank},
          {"programs", j.programs},
          {"worst", shares(row.request.geometry.gate, j)},
          {"over", j.over},
          {"elements_over", j.elements_over},
          {"finite", j.finite},
          {"verdict", j.passes() ? "pass" : "fail"},
          {"worst_program", j.worst_program},
          {"worst_seed", j.worst_seed}};
}

judge::StepJudgement total_of(const std::vector<StepRow>& rows) {
  judge::StepJudgement total;
  for (const StepRow& row : rows) judge::include(total, row.judgement);
  return total;
}

nlohmann::ordered_json to_json(const VerifyOptions& options, const lq_context_info& context, int64_t seeds,
                               const std::vector<StepRow>& rows) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const StepRow& row : rows) results.push_back(to_json(row));
  const judge::StepJudgement total = total_of(rows);
  return {{"op", "step"},
          {"backend", context.backend},
          {"gate", options.gate},
          {"target", context.target},
          {"seed", options.seed},
          {"seeds", seeds},
          {"programs", total.programs},
          {"over", total.over},
          {"worst_use", total.worst_use()},
          {"results", results}};
}

void print_total(const std::vector<StepRow>& rows, int64_t seeds) {
  const judge::StepJudgement total = total_of(rows);
  fmt::print("{} programs of {} {}: {} over the bound ({} elements), worst share of the bound {:.4f}\n", total.programs,
             seeds, seeds == 1 ? "seed" : "seeds", total.over, total.elements_over, total.worst_use());
}

// The rows that the options ask for, not judged yet.
std::vector<StepRow> requested_rows(const VerifyOptions& options, const Geometry& geometry) {
  std::vector<StepRow> rows;
  for (const std::string& family : families_or(options, {"structured", "next", "random"})) {
    for (const std::string& gate : options.gate_functions) {
      for (const int64_t batch : options.batches) {
        StepRow row;
        row.request.geometry = geometry;
        row.request.family = input_or_fail(judge::parse_step_family(family));
        row.request.gate.function = input_or_fail(judge::parse_gate_function(gate));
        row.request.batch = batch;
        row.request.threads = options.threads;
        rows.push_back(row);
      }
    }
  }
  return rows;
}

}  // namespace

void verify_step(const VerifyOptions& options) {
  const Geometry geometry = requested_geometry(options);
  std::vector<StepRow> rows = requested_rows(options, geometry);
  const Context context = make_context(options);
  context.require(judge::public_geometry(geometry));
  const int64_t items = std::accumulate(rows.begin(), rows.end(), int64_t{0},
                                        [](int64_t sum, const StepRow& row) { return sum + row.request.batch; });
  const int64_t seeds = seeds_of(options, items * geometry.num_heads);

  const bool table = options.json != "-";  // stdout holds one of the two
  if (table) print_header(geometry.gate);
  for (StepRow& row : rows) {
    for (int64_t n = 0; n < seeds; ++n) {
      row.request.seed = options.seed + static_cast<uint64_t>(n);
      judge::include(row.judgement, input_or_fail(judge::verify_step(context, row.request)));
    }
    if (table) print_row(row);
  }
  if (table) print_total(rows, seeds);
  if (!options.json.empty()) write_json(options.json, to_json(options, context.info(), seeds, rows));
  if (!total_of(rows).passes()) throw Exit{kExitOverBound};
}

}  // namespace leapquant::cli
