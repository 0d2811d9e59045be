// SPDX-License-Identifier: Apache-2.0
#include "ref/flush.h"

#include <algorithm>
#include <cmath>

namespace leapquant::ref {
namespace {

// What the checkpoint has seen since it was made: exp(pcum[k]), or p.
template <class Real>
std::vector<Real> checkpoint_decays(const Geometry& geometry, const WindowProgram& window) {
  const auto key_dim = static_cast<size_t>(geometry.key_dim);
  if (geometry.gate == Gate::kGdn) return {static_cast<Real>(*window.decay)};
  return exponentials<Real>(std::vector<Real>(window.log_decay, window.log_decay + key_dim));
}

// Column r of a thin matrix whose columns are n long.
template <class Real>
std::span<Real> column(std::vector<Real>& thin, int64_t r, int64_t n) {
  return {thin.data() + r * n, static_cast<size_t>(n)};
}

// Multiplies everything by a power of two that brings the largest magnitude near 1: exact, and norms can then neither
// underflow nor overflow. Zero and non-finite matrices are left alone.
template <class Real>
void scale_near_one(std::span<Real> values) {
  Real largest = 0;
  for (const Real value : values) largest = std::max(largest, std::fabs(value));
  if (largest == Real(0) || !std::isfinite(largest)) return;
  const int exponent = std::ilogb(largest);
  for (Real& value : values) value = std::scalbn(value, -exponent);
}

// orth: Gram-Schmidt over the columns, every projection applied twice. A column that depends on the earlier ones, up to
// rounding, becomes zero (see kDependentNorm).
template <class Real>
void orthonormalize(std::vector<Real>& thin, int64_t rank, int64_t n) {
  scale_near_one<Real>(thin);
  Real largest_norm = 0;
  for (int64_t r = 0; r < rank; ++r) {
    const std::span<Real> c = column(thin, r, n);
    largest_norm = std::max(largest_norm, std::sqrt(dot<Real>(c, c)));
  }
  for (int64_t r = 0; r < rank; ++r) {
    const std::span<Real> c = column(thin, r, n);
    Real norm[2];
    for (Real& norm_after : norm) {
      for (int64_t earlier = 0; earlier < r; ++earlier) {
        const std::span<Real> basis = column(thin, earlier, n);
        const Real projection = dot<Real>(basis, c);
        for (int64_t i = 0; i < n; ++i) c[i] -= projection * basis[i];
      }
      norm_after = std::sqrt(dot<Real>(c, c));
    }
    const bool dependent =
        norm[1] <= Real(kDependentNorm) * largest_norm || norm[1] < Real(kSecondProjectionLoss) * norm[0];
    for (Real& value : c) value = dependent ? Real(0) : value / norm[1];
  }
}

// Sᵀ x for thin x [R, V]: [R, K].
template <class Real>
std::vector<Real> transposed_product(const Geometry& geometry, std::span<const Real> state,
                                     const std::vector<Real>& x) {
  const int64_t key_dim = geometry.key_dim;
  std::vector<Real> product(static_cast<size_t>(geometry.rank) * key_dim, Real(0));
  for (int64_t r = 0; r < geometry.rank; ++r) {
    for (int64_t v = 0; v < geometry.value_dim; ++v) {
      for (int64_t k = 0; k < key_dim; ++k) {
        product[r * key_dim + k] += state[v * key_dim + k] * x[r * geometry.value_dim + v];
      }
    }
  }
  return product;
}

// S x for thin x [R, K]: [R, V].
template <class Real>
std::vector<Real> product(const Geometry& geometry, std::span<const Real> state, std::vector<Real>& x) {
  const int64_t key_dim = geometry.key_dim;
  std::vector<Real> result(static_cast<size_t>(geometry.rank) * geometry.value_dim);
  for (int64_t r = 0; r < geometry.rank; ++r) {
    for (int64_t v = 0; v < geometry.value_dim; ++v) {
      result[r * geometry.value_dim + v] = dot<Real>(state.subspan(v * key_dim, key_dim), column(x, r, key_dim));
    }
  }
  return result;
}

// q0 [V, R] by columns, each scaled by a power of two: only the directions matter.
template <class Real>
std::vector<Real> start_columns(const Geometry& geometry, const float* start_basis) {
  std::vector<Real> columns(static_cast<size_t>(geometry.rank) * geometry.value_dim);
  for (int64_t r = 0; r < geometry.rank; ++r) {
    for (int64_t v = 0; v < geometry.value_dim; ++v) {
      columns[r * geometry.value_dim + v] = start_basis[v * geometry.rank + r];
    }
    scale_near_one<Real>(column(columns, r, geometry.value_dim));
  }
  return columns;
}

template <class Real>
std::vector<Half> to_factors(const std::vector<Real>& thin) {
  std::vector<Half> factors(thin.size());
  std::transform(thin.begin(), thin.end(), factors.begin(), [](Real value) { return saturate_to_half(value); });
  return factors;
}

// E = S - q'ᵀ u', with the rounded factors.
template <class Real>
std::vector<Real> residual(const Geometry& geometry, std::span<const Real> state, const Factors& factors) {
  const int64_t key_dim = geometry.key_dim;
  const std::vector<Real> u = factor_values<Real>(factors.key_factor.data(), geometry.rank, key_dim, key_dim);
  std::vector<Real> rest(state.begin(), state.end());
  for (int64_t v = 0; v < geometry.value_dim; ++v) {
    for (int64_t r = 0; r < geometry.rank; ++r) {
      const Real value_factor = to_float(factors.value_factor[r * geometry.value_dim + v]);
      for (int64_t k = 0; k < key_dim; ++k) rest[v * key_dim + k] -= value_factor * u[r * key_dim + k];
    }
  }
  return rest;
}

// A code stays in range whatever the residual holds: NaN becomes 0.
template <class Real>
int8_t to_code(Real scaled) {
  if (std::isnan(scaled)) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(scaled), Real(-kCodeMax), Real(kCodeMax)));
}

}  // namespace

template <class Real>
std::vector<Real> rebuild_state(const Geometry& geometry, const CheckpointProgram& checkpoint,
                                const WindowProgram& window) {
  const std::vector<Real> decay = checkpoint_decays<Real>(geometry, window);
  const std::vector<Real> newest_gate(decay.size(), Real(1));
  return combined_state<Real>(geometry, checkpoint, window, geometry.window, decay, newest_gate);
}

template <class Real>
Factors compress_state(const Geometry& geometry, std::span<const Real> state, const float* start_basis) {
  std::vector<Real> p = transposed_product<Real>(geometry, state, start_columns<Real>(geometry, start_basis));
  orthonormalize(p, geometry.rank, geometry.key_dim);
  std::vector<Real> q = product<Real>(geometry, state, p);
  orthonormalize(q, geometry.rank, geometry.value_dim);
  const std::vector<Real> u = transposed_product<Real>(geometry, state, q);
  return {to_factors(u), to_factors(q)};
}

template <class Real>
void quantize_residual(const Geometry& geometry, std::span<const Real> state, const Factors& factors,
                       const CheckpointProgram& target) {
  const int64_t value_dim = geometry.value_dim;
  const int64_t key_dim = geometry.key_dim;
  const std::vector<Real> rest = residual(geometry, state, factors);
  for (int64_t r = 0; r < geometry.rank; ++r) {
    std::copy_n(factors.key_factor.begin() + r * key_dim, key_dim, target.key_factor + r * target.key_factor_row);
    std::copy_n(factors.value_factor.begin() + r * value_dim, value_dim,
                target.value_factor + r * target.value_factor_row);
  }
  for (int64_t k = 0; k < key_dim; ++k) {
    Real sum = 0;
    for (int64_t v = 0; v < value_dim; ++v) sum += std::fabs(rest[v * key_dim + k]);
    const Real scale = std::sqrt(sum / static_cast<Real>(value_dim));
    target.key_scale[k] = static_cast<float>(scale < Real(kScaleFloor) ? Real(kScaleFloor) : scale);
  }
  for (int64_t v = 0; v < value_dim; ++v) {
    Real largest = kScaleFloor;
    for (int64_t k = 0; k < key_dim; ++k) {
      largest = std::max(largest, std::fabs(rest[v * key_dim + k]) / static_cast<Real>(target.key_scale[k]));
    }
    target.value_scale[v] = static_cast<float>(largest);
    for (int64_t k = 0; k < key_dim; ++k) {
      const Real scale = static_cast<Real>(target.key_scale[k]) * static_cast<Real>(target.value_scale[v]);
      target.codes[v * key_dim + k] = to_code(Real(kCodeMax) * rest[v * key_dim + k] / scale);
    }
  }
}

template <class Real>
void flush_program(const Geometry& geometry, const CheckpointProgram& checkpoint, const WindowProgram& window,
                   const float* start_basis, const CheckpointProgram& target) {
  const std::vector<Real> state = rebuild_state<Real>(geometry, checkpoint, window);
  const Factors factors = compress_state<Real>(geometry, state, start_basis);
  quantize_residual<Real>(geometry, state, factors, target);
}

template std::vector<float> rebuild_state<float>(const Geometry&, const CheckpointProgram&, const WindowProgram&);
template std::vector<double> rebuild_state<double>(const Geometry&, const CheckpointProgram&, const WindowProgram&);
template Factors compress_state<float>(const Geometry&, std::span<const float>, const float*);
template Factors compress_state<double>(const Geometry&, std::span<const double>, const float*);
template void quantize_residual<float>(const Geometry&, std::span<const float>, const Factors&,
                                       const CheckpointProgram&);
template void quantize_residual<double>(const Geometry&, std::span<const double>, const Factors&,
                                        const CheckpointProgram&);
template void flush_program<float>(const Geometry&, const CheckpointProgram&, const WindowProgram&, const float*,
                                   const CheckpointProgram&);
template void flush_program<double>(const Geometry&, const CheckpointProgram&, const WindowProgram&, const float*,
                                    const CheckpointProgram&);

}  // namespace leapquant::ref
