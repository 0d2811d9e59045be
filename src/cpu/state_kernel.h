// SPDX-License-Identifier: Apache-2.0
//
// What the CPU backend and the SIMD body of imports and exports agree on. The scratch is that of the flush, whose steps
// they are.
#pragma once

#include <cstdint>

#include "core/dense_state.h"
#include "core/geometry.h"
#include "core/program_view.h"
#include "cpu/flush_kernel.h"
#include "cpu/targets.h"

namespace leapquant::cpu {

// The body compiled for one instruction set and one rank.
struct StateKernel {
  // Steps 2 and 3 of a given state; FlushKernel::prepare_start comes first. False when the state was not finite.
  bool (*import_state)(const DenseState& from, const CheckpointProgram& target, FlushWorkspace& workspace);
  // Step 1. `to` is fp32.
  void (*export_state)(Gate gate, const CheckpointProgram& source, const WindowProgram& window, const DenseState& to,
                       FlushWorkspace& workspace);
};

// The body for an instruction set and rank 1, 2, 4 or 8.
StateKernel state_kernel_of(const Target& target, int32_t rank);

}  // namespace leapquant::cpu
