// SPDX-License-Identifier: Apache-2.0
#include "judge/program_copy.h"

#include <algorithm>

namespace leapquant::judge {

void copy_checkpoint(const Geometry& geometry, const CheckpointProgram& from, const CheckpointProgram& to) {
  std::copy_n(from.codes, geometry.state_elements(), to.codes);
  std::copy_n(from.key_scale, geometry.key_dim, to.key_scale);
  std::copy_n(from.value_scale, geometry.value_dim, to.value_scale);
  for (int64_t r = 0; r < geometry.rank; ++r) {
    std::copy_n(from.key_factor + r * from.key_factor_row, geometry.key_dim, to.key_factor + r * to.key_factor_row);
    std::copy_n(from.value_factor + r * from.value_factor_row, geometry.value_dim,
                to.value_factor + r * to.value_factor_row);
  }
}

void copy_window(const Geometry& geometry, const WindowProgram& from, const WindowProgram& to) {
  const int64_t window = geometry.window;
  std::copy_n(from.window_key, window * geometry.key_dim, to.window_key);
  std::copy_n(from.window_update, window * geometry.value_dim, to.window_update);
  std::copy_n(from.window_weight, window, to.window_weight);
  std::copy_n(from.window_gate, window * geometry.key_dim, to.window_gate);
  std::copy_n(from.log_decay, geometry.key_dim, to.log_decay);
}

}  // namespace leapquant::judge
