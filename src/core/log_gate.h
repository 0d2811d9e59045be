// SPDX-License-Identifier: Apache-2.0
//
// The log-gate of one channel, T2 of docs/format.md.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/numerics.h"
#include "core/token_view.h"

namespace leapquant {

template <class Real>
Real sigmoid(Real x) {
  return Real(1) / (Real(1) + std::exp(-x));
}

template <class Real>
Real softplus(Real x) {
  return x > Real(kSoftplusLinear) ? x : std::log1p(std::exp(x));
}

template <class Real>
Real log_gate_of(const GateRule& rule, const TokenProgram& token, int64_t channel) {
  if (rule.function == GateFunction::kGiven) return token.log_gate[channel];
  const Real input =
      static_cast<Real>(to_float(token.gate_input[channel])) + static_cast<Real>(token.gate_bias[channel]);
  const Real rate = std::exp(static_cast<Real>(*token.log_rate));
  if (rule.function == GateFunction::kBounded) return static_cast<Real>(rule.lower_bound) * sigmoid(rate * input);
  return -rate * softplus(input);
}

}  // namespace leapquant
