// SPDX-License-Identifier: Apache-2.0
//
// The step of one token, as docs/format.md states it: one program at a time, scalar, in float or in double. Written to
// be read. The judge measures every backend against it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "core/program_view.h"
#include "core/token_view.h"

namespace leapquant::ref {

// T1. x / sqrt(sum x^2 + 1e-6), `count` long.
template <class Real>
std::vector<Real> normalized(const Bfloat16* x, int64_t count);

// T2. The token's gate, and what the checkpoint has seen with it.
template <class Real>
struct StepGates {
  std::vector<Real> log_gate;          // g [K]; GDN [1]
  std::vector<Real> decay;             // en [K]; GDN at [1]
  std::vector<Real> log_decay;         // pcum' [K]; empty for GDN
  std::vector<Real> checkpoint_decay;  // exp(pcum') [K]; GDN p' [1]
};
template <class Real>
StepGates<Real> step_gates(const Geometry& geometry, const GateRule& rule, const TokenProgram& token,
                           const WindowProgram& window);

// The results of a step before they are rounded.
template <class Real>
struct StepValues {
  std::vector<Real> output;  // o [V]
  std::vector<Real> key;     // kn [K]
  std::vector<Real> update;  // u_new [V]
  StepGates<Real> gates;

  // What a pool's error word is told, and how a window of GDN decays.
  StepOutcome outcome() const;
};

// T1 to T4: the step of a program whose window has `entries` occupied entries.
template <class Real>
StepValues<Real> step_values(const Geometry& geometry, const GateRule& rule, const CheckpointProgram& checkpoint,
                             const WindowProgram& window, int64_t entries, const TokenProgram& token);

// T5. Writes the rounded values.
template <class Real>
void write_step(const StepValues<Real>& values, const StepRows& rows);

}  // namespace leapquant::ref
