// SPDX-License-Identifier: Apache-2.0
#include "cpu/step_range.h"

#include <optional>

#include "core/checkpoint_layout.h"
#include "plan/host_draft.h"
#include "plan/host_step.h"

namespace leapquant::cpu {
namespace {

constexpr float kDraftWeights[kMaxDraftTokens] = {1, 1, 1, 1, 1, 1, 1, 1};

// The first of the programs [n, end) that `live(n)` gives, and moves n behind it.
template <class Live>
std::optional<LiveProgram> next_live(const Live& live, int64_t& n, int64_t end) {
  while (n < end) {
    if (const auto program = live(n++)) return program;
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
  queue.add(window.window_weight, kWindow * sizeof(float));
  if (plan.geometry.gate == Gate::kKda) queue.add(window.log_decay, kKeyDim * sizeof(float));
  const size_t rows = plan.in_place ? entries + 1 : entries;
  queue.add(window.window_update, rows * kValueDim * sizeof(Bfloat16));
  queue.add(window.window_key, rows * kKeyDim * sizeof(Bfloat16));
  if (plan.geometry.gate == Gate::kKda) queue.add(window.window_gate, rows * kKeyDim * sizeof(Half));
}

// Calls `step(program)` for the programs in [begin, end) that `live(n)` gives, the lines of the next one under way.
template <class Live, class Step>
void for_each_live(const StepPlan& plan, int64_t begin, int64_t end, StepWorkspace& workspace, const Live& live,
                   const Step& step) {
  int64_t n = begin;
  std::optional<LiveProgram> program = next_live(live, n, end);
  for (std::optional<LiveProgram> next; program; program = next) {
    next = next_live(live, n, end);
    workspace.upcoming.clear();
    if (next) queue_program(plan, *next, workspace.upcoming);
    step(*program);
  }
}

// The step of a program without rows, and without a token.
StepProgram to_program(const StepPlan& plan, const LiveProgram& live) {
  const WindowProgram window = plan.window.at(live.item, live.head);
  return {.gate = plan.gate,
          .rank = static_cast<size_t>(plan.geometry.rank),
          .checkpoint = plan.checkpoint.at(live.item, live.head),
          .drafted = {},
          .window = {static_cast<size_t>(live.entries), window.window_key, window.window_update, window.window_gate,
                     window.window_weight},
          .log_decay = window.log_decay,
          .decay = window.decay,
          .token = {},
          .rows = {}};
}

void draft_program(const DraftPlan& plan, StepKernel kernel, const LiveProgram& live, StepWorkspace& workspace) {
  const DraftProgram draft = plan.draft.at(live.position, live.head);
  StepProgram program = to_program(plan.step, live);
  program.drafted = {0, draft.key, draft.update, draft.gate, kDraftWeights};
  if (plan.step.geometry.gate == Gate::kGdn) {  // the record's weights decay from token to token
    program.window.weight = draft.weight;
    program.drafted.weight = draft.weight + live.entries;
    program.decay = draft.decay;
  }
  for (int32_t t = 0; t < plan.tokens; ++t) {
    program.token = plan.step.token.at(live.position * plan.tokens + t, live.head);
    program.rows = draft_rows(plan, live, t);
    finish_draft(plan, live, t, kernel(program, workspace));
    ++program.drafted.count;
    program.log_decay = program.rows.log_decay;
  }
}

}  // namespace

void step_range(const StepPlan& plan, StepKernel kernel, int64_t begin, int64_t end, StepWorkspace& workspace) {
  for_each_live(
      plan, begin, end, workspace, [&](int64_t n) { return live_program(plan, n); },
      [&](const LiveProgram& live) {
        StepProgram program = to_program(plan, live);
        program.token = plan.token.at(live.position, live.head);
        program.rows = step_rows(plan, live);
        finish_step(plan, live, kernel(program, workspace));
      });
}

void draft_range(const DraftPlan& plan, StepKernel kernel, int64_t begin, int64_t end, StepWorkspace& workspace) {
  for_each_live(
      plan.step, begin, end, workspace, [&](int64_t n) { return drafting_program(plan, n); },
      [&](const LiveProgram& live) { draft_program(plan, kernel, live, workspace); });
}

}  // namespace leapquant::cpu
