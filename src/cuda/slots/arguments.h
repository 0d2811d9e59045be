// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/status.h"
#include "cuda/slots/config.h"
#include "plan/flush_plan.h"
#include "plan/slot_plan.h"

namespace leapquant::cuda::slots {

// What the kernels are given for a plan, or why they can't run it.
Result<SlotArguments> arguments_of(const SlotPlan& plan);

// For the counters of a flush of any fill.
CounterArguments counters_of(const FlushPlan& plan);

}  // namespace leapquant::cuda::slots
