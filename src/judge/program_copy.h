// SPDX-License-Identifier: Apache-2.0
//
// Copies of single checkpoints, whatever their strides.
#pragma once

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant::judge {

void copy_checkpoint(const Geometry& geometry, const CheckpointProgram& from, const CheckpointProgram& to);

}  // namespace leapquant::judge
