// SPDX-License-Identifier: Apache-2.0
#include "plan/host_step.h"

#include <algorithm>

#include "plan/host_backend.h"

namespace leapquant {
namespace {

// The occupied entries of a slot's program; an error kind when it must not step.
struct Occupied {
  std::optional<ErrorKind> trouble;
  int64_t entries = 0;
};

Occupied occupied_entries(const StepPlan& plan, int64_t slot, int64_t head) {
  if (slot >= plan.pool.num_slots) return {ErrorKind::kIndex};
  const int32_t count = *plan.pool.fill_count.at(slot, head);
  const int32_t window = plan.geometry.window;
  if (count < 0 || count > window) return {ErrorKind::kCounter};
  if (count < window) return {std::nullopt, count};
  // A flush leaves the counter at L and the weights at 0. NaN is no 0.
  const float newest_weight = plan.window.window_weight.at(slot, head)[window - 1];
  if (newest_weight == 0.0f) return {};
  return {ErrorKind::kUnflushed};
}

}  // namespace

std::optional<LiveProgram> live_program(const StepPlan& plan, int64_t n) {
  const int64_t position = n / plan.geometry.num_heads;
  const int64_t head = n % plan.geometry.num_heads;
  if (!plan.in_place) return LiveProgram{position, position, head, *plan.entries.at(position, head)};
  const int64_t slot = plan.pool.slot_index[position];
  if (slot > 0) {
    const Occupied occupied = occupied_entries(plan, slot, head);
    if (!occupied.trouble) return LiveProgram{position, slot, head, occupied.entries};
    record_error(*plan.pool.errors, *occupied.trouble, position);
  }
  std::fill_n(plan.target.output.at(position, head), plan.geometry.value_dim, Bfloat16{0});
  return std::nullopt;
}

StepRows step_rows(const StepPlan& plan, const LiveProgram& program) {
  const auto target_row = [&](const auto& tensor) { return tensor.at(program.position, program.head); };
  Bfloat16* const output = target_row(plan.target.output);
  if (!plan.in_place) {
    return {output, target_row(plan.target.key), target_row(plan.target.update), target_row(plan.target.gate),
            target_row(plan.target.log_decay)};
  }
  const WindowProgram window = plan.window.at(program.item, program.head);
  const int64_t key_offset = program.entries * plan.geometry.key_dim;
  return {output, window.window_key + key_offset, window.window_update + program.entries * plan.geometry.value_dim,
          window.window_gate + key_offset, window.log_decay};
}

void finish_step(const StepPlan& plan, const LiveProgram& program, bool finite) {
  float* const weight = plan.window.window_weight.at(program.item, program.head);
  if (!plan.in_place) {
    float* const target = plan.target.weight.at(program.position, program.head);
    std::copy_n(weight, plan.geometry.window, target);
    target[program.entries] = 1.0f;
    return;
  }
  weight[program.entries] = 1.0f;
  *plan.pool.fill_count.at(program.item, program.head) = static_cast<int32_t>(program.entries + 1);
  if (!finite) record_error(*plan.pool.errors, ErrorKind::kNonFinite, program.position);
}

}  // namespace leapquant
