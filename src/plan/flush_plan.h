// SPDX-License-Identifier: Apache-2.0
//
// FlushPlan: everything a backend needs to run one flush, validated, with no reference to who asked. Pure data: it can
// be printed and tested without a device.
#pragma once

#include <cstdint>
#include <string>

#include "core/geometry.h"
#include "core/program_view.h"
#include "plan/error_word.h"

namespace leapquant {

// Which of a pool's programs a call works on. In the functional form there is no selection: every program is due.
struct DueSelection {
  const int32_t* slot_index = nullptr;  // [batch]; entries <= 0 are skipped
  Strided<int32_t> fill_count;          // [num_slots, H]; due when equal to the window length
  int64_t num_slots = 0;
  ErrorWord* errors = nullptr;
};

struct FlushPlan {
  Geometry geometry;
  int64_t batch = 0;
  CheckpointView source;
  CheckpointView target;
  WindowView window;
  const float* start_basis = nullptr;  // [V, R] contiguous
  bool in_place = false;               // select by `due`, then reset the windows that were flushed
  DueSelection due;

  int64_t programs() const { return batch * geometry.num_heads; }
};

std::string to_string(const FlushPlan& plan);

}  // namespace leapquant
