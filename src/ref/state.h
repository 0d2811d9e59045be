// SPDX-License-Identifier: Apache-2.0
//
// The state that a checkpoint and a window stand for: what flush and step share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant::ref {

// The sum of products, in order.
template <class Real>
Real dot(std::span<const Real> a, std::span<const Real> b) {
  Real sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A factor of rank R whose columns of n values lie `row` apart: [R, n]. Loops over its products convert it once.
template <class Real>
std::vector<Real> factor_values(const Half* factor, int64_t rank, int64_t row, int64_t n);

// The exponential of every value.
template <class Real>
std::vector<Real> exponentials(std::span<const Real> values);

// S[v, k] = S0[v, k] checkpoint_decay[k] + sum over j < entries of w[j] ubuf[j, v] kbuf[j, k] D_j[k], with
// D_j[k] = newest_gate[k] prod_{j < i < entries} gbuf[i, k], without gbuf for GDN, whose weights have decayed.
// The decays are [K], or [1] for GDN.
template <class Real>
std::vector<Real> combined_state(const Geometry& geometry, const CheckpointProgram& checkpoint,
                                 const WindowProgram& window, int64_t entries, std::span<const Real> checkpoint_decay,
                                 std::span<const Real> newest_gate);

// The state [V, K] that a checkpoint stores, evaluated in double.
std::vector<double> decode(const Geometry& geometry, const CheckpointProgram& checkpoint);

}  // namespace leapquant::ref
