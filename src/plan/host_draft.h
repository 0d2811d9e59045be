// SPDX-License-Identifier: Apache-2.0
//
// What draft and commit share on the backends on host memory.
#pragma once

#include <cstdint>
#include <optional>

#include "plan/draft_plan.h"
#include "plan/host_backend.h"
#include "plan/host_step.h"

namespace leapquant {

// Program `n` in [0, plan.step.programs()) of a draft, whose record has been begun. Nothing when it does not step: its
// output rows are then zero, its record is empty, and what is wrong with it has been recorded. Call it once per
// program.
std::optional<LiveProgram> drafting_program(const DraftPlan& plan, int64_t n);

// Where the step of drafted token t writes.
StepRows draft_rows(const DraftPlan& plan, const LiveProgram& program, int32_t t);

// After the rows of token t: its weight, and whether its results were finite.
void finish_draft(const DraftPlan& plan, const LiveProgram& program, int32_t t, const StepOutcome& outcome);

// A program whose tokens are committed.
struct CommitProgram {
  DueProgram program;
  int64_t entries;   // occupied entries before the commit
  int32_t accepted;  // tokens to append
};

// Program `n` in [0, plan.flush.programs()) of a commit; nothing when it appends nothing. What is wrong with it has
// then been recorded.
std::optional<CommitProgram> committing_program(const CommitPlan& plan, int64_t n);

// Appends drafted token t behind `entries` occupied entries, and counts it.
void append_draft(const CommitPlan& plan, const DueProgram& program, int32_t t, int64_t entries);

// Commits program `n`. Calls `flush(program)` whenever the window is full, and goes on in the empty one.
template <class Flush>
void commit_program(const CommitPlan& plan, int64_t n, const Flush& flush) {
  const auto commit = committing_program(plan, n);
  if (!commit) return;
  int64_t entries = commit->entries;
  for (int32_t t = 0; t < commit->accepted; ++t) {
    append_draft(plan, commit->program, t, entries++);
    if (entries < plan.flush.geometry.window) continue;
    flush(commit->program);
    entries = 0;
  }
}

}  // namespace leapquant
