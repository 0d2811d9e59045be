// SPDX-License-Identifier: Apache-2.0
#include "ref/state.h"

#include <algorithm>
#include <cmath>

namespace leapquant::ref {

template <class Real>
std::vector<Real> factor_values(const Half* factor, int64_t rank, int64_t row, int64_t n) {
  std::vector<Real> values(static_cast<size_t>(rank * n));
  for (int64_t r = 0; r < rank; ++r) {
    for (int64_t i = 0; i < n; ++i) values[r * n + i] = to_float(factor[r * row + i]);
  }
  return values;
}

namespace {

// S0[v, k] = sum_r q[r, v] u[r, k] + codes[v, k] (s_k[k] / 127) s_v[v]
template <class Real>
std::vector<Real> decode_as(const Geometry& geometry, const CheckpointProgram& checkpoint) {
  const int64_t value_dim = geometry.value_dim;
  const int64_t key_dim = geometry.key_dim;
  const std::vector<Real> q =
      factor_values<Real>(checkpoint.value_factor, geometry.rank, checkpoint.value_factor_row, value_dim);
  const std::vector<Real> u =
      factor_values<Real>(checkpoint.key_factor, geometry.rank, checkpoint.key_factor_row, key_dim);
  std::vector<Real> state(static_cast<size_t>(geometry.state_elements()));
  for (int64_t v = 0; v < value_dim; ++v) {
    for (int64_t k = 0; k < key_dim; ++k) {
      Real sum = 0;
      for (int64_t r = 0; r < geometry.rank; ++r) sum += q[r * value_dim + v] * u[r * key_dim + k];
      const Real code_scale = static_cast<Real>(checkpoint.key_scale[k]) / Real(kCodeMax);
      const Real row_scale = checkpoint.value_scale[v];
      state[v * key_dim + k] = sum + static_cast<Real>(checkpoint.codes[v * key_dim + k]) * code_scale * row_scale;
    }
  }
  return state;
}

// One decay for every key channel.
template <class Real>
std::vector<Real> spread(const Geometry& geometry, std::span<const Real> decay) {
  const auto key_dim = static_cast<size_t>(geometry.key_dim);
  return decay.size() == 1 ? std::vector<Real>(key_dim, decay[0]) : std::vector<Real>(decay.begin(), decay.end());
}

// D_j: a suffix product, by multiplication alone, so that a gate of 0 is nothing special.
template <class Real>
std::vector<Real> entry_decays(const Geometry& geometry, const WindowProgram& window, int64_t entries,
                               std::span<const Real> newest_gate) {
  const int64_t key_dim = geometry.key_dim;
  std::vector<Real> decay(static_cast<size_t>(entries * key_dim));
  for (int64_t j = entries - 1; j >= 0; --j) {
    for (int64_t k = 0; k < key_dim; ++k) {
      decay[j * key_dim + k] =
          j + 1 == entries || geometry.gate == Gate::kGdn
              ? newest_gate[k]
              : decay[(j + 1) * key_dim + k] * static_cast<Real>(to_float(window.window_gate[(j + 1) * key_dim + k]));
    }
  }
  return decay;
}

}  // namespace

template <class Real>
std::vector<Real> exponentials(std::span<const Real> values) {
  std::vector<Real> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(), [](Real value) { return std::exp(value); });
  return result;
}

template <class Real>
std::vector<Real> combined_state(const Geometry& geometry, const CheckpointProgram& checkpoint,
                                 const WindowProgram& window, int64_t entries, std::span<const Real> checkpoint_decay,
                                 std::span<const Real> newest_gate) {
  const int64_t key_dim = geometry.key_dim;
  std::vector<Real> state = decode_as<Real>(geometry, checkpoint);
  const std::vector<Real> old_decay = spread(geometry, checkpoint_decay);
  const std::vector<Real> decay = entry_decays<Real>(geometry, window, entries, spread(geometry, newest_gate));
  for (int64_t v = 0; v < geometry.value_dim; ++v) {
    for (int64_t k = 0; k < key_dim; ++k) state[v * key_dim + k] *= old_decay[k];
  }
  for (int64_t j = 0; j < entries; ++j) {
    const Real weight = window.window_weight[j];
    if (weight == Real(0)) continue;  // contributes nothing, whatever its rows hold
    for (int64_t v = 0; v < geometry.value_dim; ++v) {
      const Real update = weight * static_cast<Real>(to_float(window.window_update[j * geometry.value_dim + v]));
      for (int64_t k = 0; k < key_dim; ++k) {
        const Real key = to_float(window.window_key[j * key_dim + k]);
        state[v * key_dim + k] += update * (key * decay[j * key_dim + k]);
      }
    }
  }
  return state;
}

std::vector<double> decode(const Geometry& geometry, const CheckpointProgram& checkpoint) {
  return decode_as<double>(geometry, checkpoint);
}

template std::vector<float> factor_values<float>(const Half*, int64_t, int64_t, int64_t);
template std::vector<double> factor_values<double>(const Half*, int64_t, int64_t, int64_t);
template std::vector<float> exponentials<float>(std::span<const float>);
template std::vector<double> exponentials<double>(std::span<const double>);
template std::vector<float> combined_state<float>(const Geometry&, const CheckpointProgram&, const WindowProgram&,
                                                  int64_t, std::span<const float>, std::span<const float>);
template std::vector<double> combined_state<double>(const Geometry&, const CheckpointProgram&, const WindowProgram&,
                                                    int64_t, std::span<const double>, std::span<const double>);

}  // namespace leapquant::ref
