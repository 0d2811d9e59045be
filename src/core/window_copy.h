// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant {

// Copies one program's window, the tensors of its gate.
inline void copy_window(const Geometry& geometry, const WindowProgram& from, const WindowProgram& to) {
  const int64_t window = geometry.window;
  std::copy_n(from.window_key, window * geometry.key_dim, to.window_key);
  std::copy_n(from.window_update, window * geometry.value_dim, to.window_update);
  std::copy_n(from.window_weight, window, to.window_weight);
  if (geometry.gate == Gate::kGdn) {
    *to.decay = *from.decay;
    return;
  }
  std::copy_n(from.window_gate, window * geometry.key_dim, to.window_gate);
  std::copy_n(from.log_decay, geometry.key_dim, to.log_decay);
}

}  // namespace leapquant
