// SPDX-License-Identifier: Apache-2.0
//
// FlushPlan: everything a backend needs to run one flush, validated, with no reference to who asked. Pure data: it can
// be printed and tested without a device.
#pragma once

#include <cstdint>
#include <string>

#include "core/geometry.h"
#include "core/program_view.h"
#include "plan/pool_selection.h"

namespace leapquant {

struct FlushPlan {
  Geometry geometry;
  int64_t batch = 0;
  CheckpointView source;
  CheckpointView target;
  WindowView window;
  const float* start_basis = nullptr;  // [V, R] contiguous
  bool in_place = false;               // select by `due`, then reset the windows that were flushed
  PoolSelection due;
  bool any_fill = false;  // in place: work on windows of any fill, and leave the counter at 0

  int64_t programs() const { return batch * geometry.num_heads; }
};

std::string to_string(const FlushPlan& plan);

}  // namespace leapquant
