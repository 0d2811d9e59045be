// SPDX-License-Identifier: Apache-2.0
//
// What the calls that step a pool's slots have in common.
#pragma once

#include "api/validate.h"

namespace leapquant::api {

// The step of `tokens` rows for each index. `scratch`, which may be null, is written as the output is.
Result<StepPlan> plan_slot_steps(const Pool& pool, const InplaceStepRequest& request, int32_t tokens,
                                 const Named* scratch);

}  // namespace leapquant::api
