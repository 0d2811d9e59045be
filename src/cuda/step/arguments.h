// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/status.h"
#include "cuda/step/config.h"
#include "plan/step_plan.h"

namespace leapquant::cuda::step {

// What the kernel is given for a plan, or why it can't run it.
Result<StepArguments> arguments_of(const StepPlan& plan);

}  // namespace leapquant::cuda::step
