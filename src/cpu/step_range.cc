// SPDX-License-Identifier: Apache-2.0
#include "cpu/step_range.h"

#include <optional>

#include "core/checkpoint_layout.h"
#include "plan/host_step.h"

namespace leapquant::cpu {
namespace {

// The first live program in [n, end), and moves n behind it.
std::optional<LiveProgram> next_live(const StepPlan& plan, int64_t& n, int64_t end) {
  while (n < end) {
    if (const auto program = live_program(plan, n++)) return program;
  }
  return std::nullopt;
}

// Lines of a program that are worth fetching ahead: the codes, in a pool with scales and factors behind them, and the
// occupied rows of the window.
void queue_program(const StepPlan& plan, const LiveProgram& program, PrefetchQueue& queue) {
  const WindowProgram window = plan.window.at(program.item, program.head);
  const auto entries = static_cast<size_t>(program.entries);
  const int64_t bytes = plan.in_place ? region_offsets(plan.geometry).end : plan.geometry.state_elements();
  queue.add(plan.checkpoint.codes.at(program.item, program.head), static_cast<size_t>(bytes));
  queue.add(window.log_decay, kKeyDim * sizeof(float));
  if (entries == 0) return;
  queue.add(window.window_update, entries * kValueDim * sizeof(Bfloat16));
  queue.add(window.window_key, entries * kKeyDim * sizeof(Bfloat16));
  queue.add(window.window_gate, entries * kKeyDim * sizeof(Half));
}

StepProgram to_program(const StepPlan& plan, const LiveProgram& live) {
  return {.gate = plan.gate,
          .rank = static_cast<size_t>(plan.geometry.rank),
          .entries = static_cast<size_t>(live.entries),
          .checkpoint = plan.checkpoint.at(live.item, live.head),
          .window = plan.window.at(live.item, live.head),
          .token = plan.token.at(live.position, live.head),
          .rows = step_rows(plan, live)};
}

}  // namespace

void step_range(const StepPlan& plan, StepKernel kernel, int64_t begin, int64_t end, StepWorkspace& workspace) {
  int64_t n = begin;
  std::optional<LiveProgram> live = next_live(plan, n, end);
  for (std::optional<LiveProgram> next; live; live = next) {
    next = next_live(plan, n, end);
    workspace.upcoming.clear();
    if (next) queue_program(plan, *next, workspace.upcoming);
    finish_step(plan, *live, kernel(to_program(plan, *live), workspace));
  }
}

}  // namespace leapquant::cpu
