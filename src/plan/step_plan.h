// SPDX-License-Identifier: Apache-2.0
//
// StepPlan: everything a backend needs to run the step of one token, validated, with no reference to who asked. Pure
// data, as FlushPlan is.
#pragma once

#include <cstdint>
#include <string>

#include "core/geometry.h"
#include "core/program_view.h"
#include "core/token_view.h"
#include "plan/pool_selection.h"

namespace leapquant {

// Where the functional form puts its results, [batch, H] programs each. In place there is only the output; the other
// rows go to the pool's windows.
struct StepTargets {
  Strided<Bfloat16> output;
  Strided<Bfloat16> key;
  Strided<Bfloat16> update;
  Strided<Half> gate;  // KDA
  Strided<float> weight;
  Strided<float> log_decay;  // KDA
  Strided<float> decay;      // GDN
};

struct StepPlan {
  Geometry geometry;
  int64_t batch = 0;
  CheckpointView checkpoint;  // items are batch indices, or slots in place
  WindowView window;
  TokenView token;  // items are batch indices
  GateRule gate;
  StepTargets target;              // items are batch indices
  Strided<const int32_t> entries;  // [batch, H] occupied entries, in [0, L) unless on a device; functional form
  bool in_place = false;           // append to the slots of `pool`, and count
  PoolSelection pool;

  int64_t programs() const { return batch * geometry.num_heads; }
};

std::string to_string(const StepPlan& plan);

}  // namespace leapquant
