// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/status.h"
#include "cuda/common/arguments.h"
#include "cuda/slots/config.h"
#include "plan/flush_plan.h"
#include "plan/slot_plan.h"

namespace leapquant::cuda::slots {

// A pool's programs in the tensors that hold them, and whether their bytes can be written 16 at a time.
Parts parts_of(const Geometry& geometry, const CheckpointView& checkpoint, const WindowView& window);
Status check_parts(const Parts& parts, const ProgramCounts& counts);

// What the kernels are given for a plan, or why they can't run it.
Result<SlotArguments> arguments_of(const SlotPlan& plan);

// For the counters of a flush of any fill.
CounterArguments counters_of(const FlushPlan& plan);

}  // namespace leapquant::cuda::slots
