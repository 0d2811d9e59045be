// SPDX-License-Identifier: Apache-2.0
//
// Dense states of the caller, in any type and order, as the reference's own [V, K].
#pragma once

#include <span>
#include <vector>

#include "core/dense_state.h"
#include "core/geometry.h"

namespace leapquant::ref {

std::vector<float> read_dense(const Geometry& geometry, const DenseState& from);

// `to` is fp32.
void write_dense(const Geometry& geometry, std::span<const float> state, const DenseState& to);

}  // namespace leapquant::ref
