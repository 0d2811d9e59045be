// SPDX-License-Identifier: Apache-2.0
//
// One worker's share of a step, and of a draft.
#pragma once

#include <cstdint>

#include "cpu/step_kernel.h"
#include "plan/draft_plan.h"
#include "plan/step_plan.h"

namespace leapquant::cpu {

// Steps the programs [begin, end) of a plan.
void step_range(const StepPlan& plan, StepKernel kernel, int64_t begin, int64_t end, StepWorkspace& workspace);

// Steps all tokens of the programs [begin, end) of a plan, one program after another: its checkpoint is read once.
void draft_range(const DraftPlan& plan, StepKernel kernel, int64_t begin, int64_t end, StepWorkspace& workspace);

}  // namespace leapquant::cpu
