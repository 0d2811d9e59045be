// SPDX-License-Identifier: Apache-2.0
#include "plan/host_step.h"

#include <algorithm>

#include "core/append_weight.h"
#include "plan/host_backend.h"

namespace leapquant {
namespace {

// Weights, and GDN's decay, where the functional form puts them: as they were before the token.
WindowProgram copied_weights(const StepPlan& plan, const LiveProgram& program, const WindowProgram& from) {
  WindowProgram to{};
  to.window_weight = plan.target.weight.at(program.position, program.head);
  std::copy_n(from.window_weight, plan.geometry.window, to.window_weight);
  if (plan.geometry.gate == Gate::kGdn) {
    to.decay = plan.target.decay.at(program.position, program.head);
    *to.decay = *from.decay;
  }
  return to;
}

}  // namespace

Occupied occupied_entries(const Geometry& geometry, const PoolSelection& pool, const WindowView& window, int64_t slot,
                          int64_t head) {
  if (slot >= pool.num_slots) return ErrorKind::kIndex;
  const int32_t count = *pool.fill_count.at(slot, head);
  if (count < 0 || count > geometry.window) return ErrorKind::kCounter;
  if (count < geometry.window) return int64_t{count};
  // A flush leaves the counter at L and the weights at 0. NaN is no 0.
  const float newest_weight = window.window_weight.at(slot, head)[geometry.window - 1];
  if (newest_weight == 0.0f) return int64_t{0};
  return ErrorKind::kUnflushed;
}

std::optional<LiveProgram> stepping_program(const StepPlan& plan, int64_t n) {
  const int64_t position = n / plan.geometry.num_heads;
  const int64_t head = n % plan.geometry.num_heads;
  if (!plan.in_place) return LiveProgram{position, position, head, *plan.entries.at(position, head)};
  const int64_t slot = plan.pool.slot_index[position];
  if (slot <= 0) return std::nullopt;
  const Occupied occupied = occupied_entries(plan.geometry, plan.pool, plan.window, slot, head);
  if (occupied.ok()) return LiveProgram{position, slot, head, occupied.entries()};
  record_error(*plan.pool.errors, occupied.trouble(), position);
  return std::nullopt;
}

std::optional<LiveProgram> live_program(const StepPlan& plan, int64_t n) {
  const auto program = stepping_program(plan, n);
  if (program) return program;
  Bfloat16* const output = plan.target.output.at(n / plan.geometry.num_heads, n % plan.geometry.num_heads);
  std::fill_n(output, plan.geometry.value_dim, Bfloat16{0});
  return std::nullopt;
}

StepRows step_rows(const StepPlan& plan, const LiveProgram& program) {
  const bool kda = plan.geometry.gate == Gate::kKda;
  const auto target_row = [&](const auto& tensor) { return tensor.at(program.position, program.head); };
  Bfloat16* const output = target_row(plan.target.output);
  if (!plan.in_place) {
    return {output,
            target_row(plan.target.key),
            target_row(plan.target.update),
            kda ? target_row(plan.target.gate) : nullptr,
            kda ? target_row(plan.target.log_decay) : nullptr,
            nullptr};
  }
  const WindowProgram window = plan.window.at(program.item, program.head);
  const int64_t key_offset = program.entries * plan.geometry.key_dim;
  return {output,
          window.window_key + key_offset,
          window.window_update + program.entries * plan.geometry.value_dim,
          kda ? window.window_gate + key_offset : nullptr,
          window.log_decay,
          nullptr};
}

void finish_step(const StepPlan& plan, const LiveProgram& program, const StepOutcome& outcome) {
  WindowProgram window = plan.window.at(program.item, program.head);
  if (!plan.in_place) window = copied_weights(plan, program, window);
  append_weight(plan.geometry.gate, window, program.entries, outcome.token_decay);
  if (!plan.in_place) return;
  *plan.pool.fill_count.at(program.item, program.head) = static_cast<int32_t>(program.entries + 1);
  if (!outcome.finite) record_error(*plan.pool.errors, ErrorKind::kNonFinite, program.position);
}

}  // namespace leapquant
