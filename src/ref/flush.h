// SPDX-License-Identifier: Apache-2.0
//
// The flush, as docs/format.md states it: one program at a time, scalar, in float or in double. Written to be read. The
// judge measures every backend against it.
//
// Matrices are row-major. A thin matrix (one column per rank) is stored by columns: [R, n].
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "core/program_view.h"
#include "ref/state.h"

namespace leapquant::ref {

// Step 1. The state [V, K] that a checkpoint and its window stand for.
template <class Real>
std::vector<Real> rebuild_state(const Geometry& geometry, const CheckpointProgram& checkpoint,
                                const WindowProgram& window);

// Step 2. The rank-R part of a state, by one round of subspace iteration from `start_basis` [V, R].
struct Factors {
  std::vector<Half> key_factor;    // u [R, K]
  std::vector<Half> value_factor;  // q [R, V]
};
template <class Real>
Factors compress_state(const Geometry& geometry, std::span<const Real> state, const float* start_basis);

// Step 3. Writes the checkpoint of `state`: its factors, then scales and codes of what they leave over.
template <class Real>
void quantize_residual(const Geometry& geometry, std::span<const Real> state, const Factors& factors,
                       const CheckpointProgram& target);

// Steps 1 to 3. `target` may be `checkpoint` itself.
template <class Real>
void flush_program(const Geometry& geometry, const CheckpointProgram& checkpoint, const WindowProgram& window,
                   const float* start_basis, const CheckpointProgram& target);

}  // namespace leapquant::ref
