// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/status.h"
#include "cuda/state/config.h"
#include "plan/state_plan.h"

namespace leapquant::cuda::state {

// What the kernels are given for a plan, or why they can't run it.
Result<ImportArguments> import_arguments(const StatePlan& plan);
Result<StateArguments> export_arguments(const StatePlan& plan);

}  // namespace leapquant::cuda::state
