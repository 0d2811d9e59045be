// SPDX-License-Identifier: Apache-2.0
#include "plan/host_draft.h"

#include <algorithm>

#include "core/append_weight.h"

namespace leapquant {
namespace {

// GDN: the weights and what the checkpoint has seen, which a draft decays in its record.
WindowProgram drafted_weights(const DraftProgram& draft) {
  WindowProgram window{};
  window.window_weight = draft.weight;
  window.decay = draft.decay;
  return window;
}

}  // namespace

std::optional<LiveProgram> drafting_program(const DraftPlan& plan, int64_t n) {
  const Geometry& geometry = plan.step.geometry;
  const int64_t position = n / geometry.num_heads;
  const int64_t head = n % geometry.num_heads;
  const DraftProgram draft = plan.draft.at(position, head);
  *draft.header = {};
  if (const auto program = stepping_program(plan.step, n)) {
    draft.header->tokens = plan.tokens;
    draft.header->entries = static_cast<int32_t>(program->entries);
    if (geometry.gate == Gate::kGdn) {
      const WindowProgram window = plan.step.window.at(program->item, head);
      std::copy_n(window.window_weight, program->entries, draft.weight);
      *draft.decay = *window.decay;
    }
    return program;
  }
  for (int32_t t = 0; t < plan.tokens; ++t) {
    std::fill_n(plan.step.target.output.at(position * plan.tokens + t, head), geometry.value_dim, Bfloat16{0});
  }
  return std::nullopt;
}

StepRows draft_rows(const DraftPlan& plan, const LiveProgram& program, int32_t t) {
  const Geometry& geometry = plan.step.geometry;
  const DraftProgram draft = plan.draft.at(program.position, program.head);
  const bool kda = geometry.gate == Gate::kKda;
  const int64_t key_offset = int64_t{t} * geometry.key_dim;
  return {plan.step.target.output.at(program.position * plan.tokens + t, program.head),
          draft.key + key_offset,
          draft.update + int64_t{t} * geometry.value_dim,
          kda ? draft.gate + key_offset : nullptr,
          draft.log_decay,
          kda ? draft.log_gate + key_offset : nullptr};
}

void finish_draft(const DraftPlan& plan, const LiveProgram& program, int32_t t, const StepOutcome& outcome) {
  const DraftProgram draft = plan.draft.at(program.position, program.head);
  if (!outcome.finite) draft.header->nonfinite |= 1u << t;
  if (plan.step.geometry.gate == Gate::kKda) return;
  draft.token_decay[t] = outcome.token_decay;
  append_weight(Gate::kGdn, drafted_weights(draft), program.entries + t, outcome.token_decay);
}

std::optional<CommitProgram> committing_program(const CommitPlan& plan, int64_t n) {
  const int64_t position = n / plan.flush.geometry.num_heads;
  const int64_t head = n % plan.flush.geometry.num_heads;
  const int64_t slot = plan.flush.due.slot_index[position];
  const int32_t accepted = plan.accepted[position];
  if (slot <= 0) return std::nullopt;
  if (accepted == 0 && slot < plan.flush.due.num_slots) return std::nullopt;  // an index beyond is always reported
  const auto occupied = occupied_entries(plan.flush.geometry, plan.flush.due, plan.flush.window, slot, head);
  if (!occupied.ok()) {
    record_error(*plan.flush.due.errors, occupied.trouble(), position);
    return std::nullopt;
  }
  const DraftHeader& header = *plan.draft.at(position, head).header;
  if (header.tokens != plan.tokens || header.entries != occupied.entries()) {
    record_error(*plan.flush.due.errors, ErrorKind::kCounter, position);
    return std::nullopt;
  }
  if ((header.nonfinite & ((1u << accepted) - 1)) != 0) {
    record_error(*plan.flush.due.errors, ErrorKind::kNonFinite, position);
  }
  return CommitProgram{{position, slot, head}, occupied.entries(), accepted};
}

void append_draft(const CommitPlan& plan, const DueProgram& program, int32_t t, int64_t entries) {
  const Geometry& geometry = plan.flush.geometry;
  const int64_t key_dim = geometry.key_dim;
  const int64_t value_dim = geometry.value_dim;
  const DraftProgram draft = plan.draft.at(program.position, program.head);
  const WindowProgram window = plan.flush.window.at(program.item, program.head);
  std::copy_n(draft.key + t * key_dim, key_dim, window.window_key + entries * key_dim);
  std::copy_n(draft.update + t * value_dim, value_dim, window.window_update + entries * value_dim);
  // The additions and products of single steps, in their order.
  if (geometry.gate == Gate::kKda) {
    std::copy_n(draft.gate + t * key_dim, key_dim, window.window_gate + entries * key_dim);
    const float* const log_gate = draft.log_gate + t * key_dim;
    for (int64_t k = 0; k < key_dim; ++k) window.log_decay[k] += log_gate[k];
  }
  const float token_decay = geometry.gate == Gate::kGdn ? draft.token_decay[t] : 1.0f;
  append_weight(geometry.gate, window, entries, token_decay);
  *plan.flush.due.fill_count.at(program.item, program.head) = static_cast<int32_t>(entries + 1);
}

}  // namespace leapquant
