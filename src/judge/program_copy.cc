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

}  // namespace leapquant::judge
