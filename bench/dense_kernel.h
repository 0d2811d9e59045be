// SPDX-License-Identifier: Apache-2.0
//
// What a quantized state is measured against: one token on a dense fp32 state, the fastest way we know. Compiled once
// per instruction set.
#pragma once

#include <string>

#include "judge/step_tensors.h"

namespace leapquant::bench {

// T1 to T4 of docs/format.md for one program, with the softplus gate: decays `state` [128, 128] (value, key), adds the
// token's update to it, and gives `output` [128]. Every element is read from memory once and written once.
using DenseKernel = void (*)(const TokenProgram& token, float* state, Bfloat16* output);

// The body for an instruction set by its name; the best one for a name that is not known here.
DenseKernel dense_kernel(const std::string& target, Gate gate);

}  // namespace leapquant::bench
