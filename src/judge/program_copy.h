// SPDX-License-Identifier: Apache-2.0
//
// Copies of single programs, whatever their strides.
#pragma once

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant::judge {

void copy_checkpoint(const Geometry& geometry, const CheckpointProgram& from, const CheckpointProgram& to);
void copy_window(const Geometry& geometry, const WindowProgram& from, const WindowProgram& to);

}  // namespace leapquant::judge
