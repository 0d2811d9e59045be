// SPDX-License-Identifier: Apache-2.0
//
// What the steps of the backends on host memory share: which programs step, where their rows go, and what the counter
// says afterwards.
#pragma once

#include <optional>

#include "plan/step_plan.h"

namespace leapquant {

// A program that steps: its place in the batch, its item (slot, or batch index) and head, and its occupied entries.
struct LiveProgram {
  int64_t position;
  int64_t item;
  int64_t head;
  int64_t entries;
};

// Program `n` in [0, plan.programs()) of a plan. Nothing when it does not step: its output row is then zero, and what
// is wrong with it has been recorded. Call it once per program.
std::optional<LiveProgram> live_program(const StepPlan& plan, int64_t n);

// Where the step of a program writes.
StepRows step_rows(const StepPlan& plan, const LiveProgram& program);

// After the rows: the weights, and in place the counter and whether the results were finite.
void finish_step(const StepPlan& plan, const LiveProgram& program, bool finite);

}  // namespace leapquant
