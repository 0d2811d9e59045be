// SPDX-License-Identifier: Apache-2.0
//
// DraftPlan and CommitPlan: speculative decoding, validated. Pure data, as FlushPlan is.
#pragma once

#include <cstdint>

#include "core/draft_layout.h"
#include "plan/flush_plan.h"
#include "plan/step_plan.h"

namespace leapquant {

// Steps of `tokens` tokens for each sequence, one attending to the other, that leave the pool as it is.
struct DraftPlan {
  StepPlan step;  // in place; token and output have the item position * tokens + t
  int32_t tokens = 0;
  DraftView draft;
};

// The first accepted[i] tokens of sequence i are appended, and windows that this fills are flushed.
struct CommitPlan {
  FlushPlan flush;  // in place
  int32_t tokens = 0;
  DraftView draft;
  const int32_t* accepted = nullptr;  // [batch], in [0, tokens] unless on a device
};

}  // namespace leapquant
