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

// The occupied entries of a slot's program, or why it must not step.
class Occupied {
 public:
  Occupied(ErrorKind trouble) : trouble_(trouble) {}  // NOLINT(google-explicit-constructor)
  Occupied(int64_t entries) : entries_(entries) {}    // NOLINT(google-explicit-constructor)

  bool ok() const { return !trouble_; }
  ErrorKind trouble() const { return *trouble_; }
  int64_t entries() const { return entries_; }

 private:
  std::optional<ErrorKind> trouble_;
  int64_t entries_ = 0;
};
Occupied occupied_entries(const Geometry& geometry, const PoolSelection& pool, const WindowView& window, int64_t slot,
                          int64_t head);

// Program `n` in [0, plan.programs()) of a plan. Nothing when it does not step: what is wrong with it has been
// recorded. Call it once per program.
std::optional<LiveProgram> stepping_program(const StepPlan& plan, int64_t n);

// The same; the output row of a program that does not step is then zero.
std::optional<LiveProgram> live_program(const StepPlan& plan, int64_t n);

// Where the step of a program writes.
StepRows step_rows(const StepPlan& plan, const LiveProgram& program);

// After the rows: the weights (GDN: as they decay, and the checkpoint's decay), and in place the counter and whether
// the results were finite.
void finish_step(const StepPlan& plan, const LiveProgram& program, const StepOutcome& outcome);

}  // namespace leapquant
