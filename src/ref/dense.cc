// SPDX-License-Identifier: Apache-2.0
#include "ref/dense.h"

#include <cassert>

#include "core/numerics.h"

namespace leapquant::ref {
namespace {

// Where element [v, k] stands.
int64_t place(const Geometry& geometry, StateOrder order, int64_t v, int64_t k) {
  return order == StateOrder::kValueKey ? v * geometry.key_dim + k : k * geometry.value_dim + v;
}

}  // namespace

std::vector<float> read_dense(const Geometry& geometry, const DenseState& from) {
  std::vector<float> state(static_cast<size_t>(geometry.state_elements()));
  for (int64_t v = 0; v < geometry.value_dim; ++v) {
    for (int64_t k = 0; k < geometry.key_dim; ++k) {
      const int64_t n = place(geometry, from.order, v, k);
      state[v * geometry.key_dim + k] = from.dtype == DType::kBfloat16
                                            ? to_float(static_cast<const Bfloat16*>(from.data)[n])
                                            : static_cast<const float*>(from.data)[n];
    }
  }
  return state;
}

void write_dense(const Geometry& geometry, std::span<const float> state, const DenseState& to) {
  assert(to.dtype == DType::kFloat32);
  auto* const out = static_cast<float*>(to.data);
  for (int64_t v = 0; v < geometry.value_dim; ++v) {
    for (int64_t k = 0; k < geometry.key_dim; ++k) {
      out[place(geometry, to.order, v, k)] = state[v * geometry.key_dim + k];
    }
  }
}

}  // namespace leapquant::ref
