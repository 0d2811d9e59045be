// SPDX-License-Identifier: Apache-2.0
#include "judge/dense_recurrence.h"

#include <cmath>

namespace leapquant::judge {
namespace {

// Sums that several lanes at a time can take.
constexpr int64_t kLanes = 8;

template <class Real>
Real dot(const Real* a, const Real* b, int64_t count) {
  Real lane[kLanes] = {};
  for (int64_t i = 0; i < count; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) lane[l] += a[i + l] * b[i + l];
  }
  return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

}  // namespace

template <class Real>
const std::vector<Real>& DenseRecurrence<Real>::step(const TokenProgram& token) {
  const int64_t key_dim = geometry_.key_dim;
  const std::vector<Real> key = ref::normalized<Real>(token.key, key_dim);
  std::vector<Real> query = ref::normalized<Real>(token.query, key_dim);
  for (Real& value : query) value /= std::sqrt(static_cast<Real>(key_dim));
  const std::vector<Real> decay = ref::step_gates<Real>(geometry_, GateRule{}, token, up_to_date()).decay;
  const Real beta = to_float(beta_of(*token.beta_input));
  for (int64_t v = 0; v < geometry_.value_dim; ++v) {
    Real* const row = state_.data() + v * key_dim;
    for (int64_t k = 0; k < key_dim; ++k) row[k] *= decay[decay.size() == 1 ? 0 : k];
    const Real update = beta * (static_cast<Real>(to_float(token.value[v])) - dot(row, key.data(), key_dim));
    for (int64_t k = 0; k < key_dim; ++k) row[k] += update * key[k];
    output_[v] = dot(row, query.data(), key_dim);
  }
  return output_;
}

template class DenseRecurrence<float>;
template class DenseRecurrence<double>;

}  // namespace leapquant::judge
