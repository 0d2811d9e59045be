// SPDX-License-Identifier: Apache-2.0
//
// SlotPlan: whole slots of a pool to reset or to copy, validated. Pure data, as FlushPlan is.
#pragma once

#include <cstdint>

#include "core/geometry.h"
#include "core/program_view.h"
#include "plan/pool_selection.h"

namespace leapquant {

struct SlotPlan {
  Geometry geometry;
  int64_t count = 0;
  CheckpointView checkpoint;  // codes begin a region, all of which lies together
  WindowView window;
  PoolSelection pool;                     // slot_index: the slots that are written
  const int32_t* source_index = nullptr;  // [count]: where a copy comes from
};

}  // namespace leapquant
