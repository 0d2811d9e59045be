// SPDX-License-Identifier: Apache-2.0
//
// StatePlan: dense states that go into the slots of a pool (import) or come out of them (export), validated. Pure data,
// as FlushPlan is.
#pragma once

#include <cstdint>

#include "core/dense_state.h"
#include "core/geometry.h"
#include "core/program_view.h"
#include "plan/pool_selection.h"

namespace leapquant {

struct StatePlan {
  Geometry geometry;
  int64_t batch = 0;
  DenseStateView states;      // items are batch indices
  CheckpointView checkpoint;  // items are slots
  WindowView window;
  PoolSelection pool;
  const float* start_basis = nullptr;  // [V, R] contiguous; import
  // [batch, H] counters of the imported programs, in [0, L) unless they lie on a device; null: all 0
  Strided<const int32_t> first_entry;

  int64_t programs() const { return batch * geometry.num_heads; }
};

}  // namespace leapquant
