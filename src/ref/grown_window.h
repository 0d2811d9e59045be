// SPDX-License-Identifier: Apache-2.0
//
// A copy of a window's occupied entries with room for more, beyond the window's own length as well.
#pragma once

#include <cstdint>
#include <vector>

#include "core/geometry.h"
#include "core/program_view.h"
#include "core/token_view.h"

namespace leapquant::ref {

class GrownWindow {
 public:
  GrownWindow(const Geometry& geometry, const WindowProgram& window, int64_t entries, int64_t room);

  WindowProgram view();
  // Appends the entry that a step has made. `token_decay` as in StepOutcome.
  void append(const StepRows& rows, float token_decay);

 private:
  Geometry geometry_;
  std::vector<Bfloat16> key_;     // [entries, K]
  std::vector<Bfloat16> update_;  // [entries, V]
  std::vector<float> weight_;     // [entries]
  std::vector<Half> gate_;        // [entries, K] KDA
  std::vector<float> log_decay_;  // [K] KDA
  float decay_;                   // GDN
};

}  // namespace leapquant::ref
