// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/status.h"
#include "cuda/draft/config.h"
#include "plan/draft_plan.h"

namespace leapquant::cuda::draft {

// What the kernels are given for a plan, or why they can't run it.
Result<DraftArguments> draft_arguments(const DraftPlan& plan);
Result<CommitArguments> commit_arguments(const CommitPlan& plan);

}  // namespace leapquant::cuda::draft
