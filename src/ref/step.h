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

// T2. The token's gate, and the log-decay with it.
template <class Real>
struct StepGates {
  std::vector<Real> log_gate;   // g [K]
  std::vector<Real> decay;      // en [K]
  std::vector<Real> log_decay;  // pcum' [K]
};
template <class Real>
StepGates<Real> step_gates(const Geometry& geometry, const GateRule& rule, const TokenProgram& token,
                           const float* log_decay);

// The results of a step before they are rounded.
template <class Real>
struct StepValues {
  std::vector<Real> output;  // o [V]
  std::vector<Real> key;     // kn [K]
  std::vector<Real> update;  // u_new [V]
  StepGates<Real> gates;

  // No NaN and no Inf: what a pool's error word is told otherwise.
  bool finite() const;
};

// T1 to T4: the step of a program whose window has `entries` occupied entries.
template <class Real>
StepValues<Real> step_values(const Geometry& geometry, const GateRule& rule, const CheckpointProgram& checkpoint,
                             const WindowProgram& window, int64_t entries, const TokenProgram& token);

// T5. Writes the rounded values.
template <class Real>
void write_step(const StepValues<Real>& values, const StepRows& rows);

}  // namespace leapquant::ref
