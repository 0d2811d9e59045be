// SPDX-License-Identifier: Apache-2.0
#include "ref/step.h"

#include <algorithm>
#include <cmath>

#include "core/log_gate.h"
#include "ref/state.h"

namespace leapquant::ref {
namespace {

template <class Real>
bool all_finite(const std::vector<Real>& values) {
  return std::all_of(values.begin(), values.end(), [](Real value) { return std::isfinite(value); });
}

template <class Real>
void write_row(const std::vector<Real>& values, Bfloat16* row) {
  std::transform(values.begin(), values.end(), row, [](Real value) { return to_bfloat16(static_cast<float>(value)); });
}

}  // namespace

template <class Real>
std::vector<Real> normalized(const Bfloat16* x, int64_t count) {
  std::vector<Real> values(static_cast<size_t>(count));
  std::transform(x, x + count, values.begin(), [](Bfloat16 value) { return static_cast<Real>(to_float(value)); });
  const bool loud =
      std::any_of(values.begin(), values.end(), [](Real value) { return std::fabs(value) > Real(kLoudInput); });
  for (Real& value : values) value *= loud ? Real(kLoudScale) : Real(1);
  const Real norm = std::sqrt(dot<Real>(values, values) + (loud ? Real(0) : Real(kNormFloor)));
  for (Real& value : values) value /= norm;
  return values;
}

template <class Real>
StepGates<Real> step_gates(const Geometry& geometry, const GateRule& rule, const TokenProgram& token,
                           const WindowProgram& window) {
  if (geometry.gate == Gate::kGdn) {
    // In double: it is one number, and all weights inherit its error.
    const double gate = log_gate_of<double>(rule, token, 0);
    const Real decay = static_cast<Real>(std::exp(gate));
    return {{static_cast<Real>(gate)}, {decay}, {}, {static_cast<Real>(*window.decay) * decay}};
  }
  StepGates<Real> gates;
  for (int64_t k = 0; k < geometry.key_dim; ++k) {
    const Real gate = log_gate_of<Real>(rule, token, k);
    gates.log_gate.push_back(gate);
    gates.decay.push_back(std::exp(gate));
    gates.log_decay.push_back(static_cast<Real>(window.log_decay[k]) + gate);
  }
  gates.checkpoint_decay = exponentials<Real>(gates.log_decay);
  return gates;
}

template <class Real>
StepOutcome StepValues<Real>::outcome() const {
  const std::vector<Real>& seen = gates.log_decay.empty() ? gates.checkpoint_decay : gates.log_decay;
  return {all_finite(output) && all_finite(update) && all_finite(seen), static_cast<float>(gates.decay[0])};
}

template <class Real>
StepValues<Real> step_values(const Geometry& geometry, const GateRule& rule, const CheckpointProgram& checkpoint,
                             const WindowProgram& window, int64_t entries, const TokenProgram& token) {
  const int64_t key_dim = geometry.key_dim;
  const auto value_dim = static_cast<size_t>(geometry.value_dim);
  // T1 and T2
  StepValues<Real> values{std::vector<Real>(value_dim), normalized<Real>(token.key, key_dim),
                          std::vector<Real>(value_dim), step_gates<Real>(geometry, rule, token, window)};
  std::vector<Real> query = normalized<Real>(token.query, key_dim);
  for (Real& value : query) value /= std::sqrt(static_cast<Real>(key_dim));
  // T3
  const std::vector<Real> state =
      combined_state<Real>(geometry, checkpoint, window, entries, values.gates.checkpoint_decay, values.gates.decay);
  // T4
  const Real beta = to_float(beta_of(*token.beta_input));
  const Real key_query = dot<Real>(values.key, query);
  for (size_t v = 0; v < value_dim; ++v) {
    const std::span<const Real> row(state.data() + v * values.key.size(), values.key.size());
    const Real value = to_float(token.value[v]);
    values.update[v] = beta * (value - dot<Real>(row, values.key));
    values.output[v] = dot<Real>(row, query) + key_query * values.update[v];
  }
  return values;
}

template <class Real>
void write_step(const StepValues<Real>& values, const StepRows& rows) {
  write_row(values.output, rows.output);
  write_row(values.key, rows.key);
  write_row(values.update, rows.update);
  if (rows.gate == nullptr) return;
  std::transform(values.gates.decay.begin(), values.gates.decay.end(), rows.gate,
                 [](Real value) { return saturate_to_half(value); });
  const auto write_floats = [](const std::vector<Real>& from, float* row) {
    std::transform(from.begin(), from.end(), row, [](Real value) { return static_cast<float>(value); });
  };
  write_floats(values.gates.log_decay, rows.log_decay);
  if (rows.log_gate != nullptr) write_floats(values.gates.log_gate, rows.log_gate);
}

template struct StepValues<float>;
template struct StepValues<double>;
template std::vector<float> normalized<float>(const Bfloat16*, int64_t);
template std::vector<double> normalized<double>(const Bfloat16*, int64_t);
template StepGates<float> step_gates<float>(const Geometry&, const GateRule&, const TokenProgram&,
                                            const WindowProgram&);
template StepGates<double> step_gates<double>(const Geometry&, const GateRule&, const TokenProgram&,
                                              const WindowProgram&);
template StepValues<float> step_values<float>(const Geometry&, const GateRule&, const CheckpointProgram&,
                                              const WindowProgram&, int64_t, const TokenProgram&);
template StepValues<double> step_values<double>(const Geometry&, const GateRule&, const CheckpointProgram&,
                                                const WindowProgram&, int64_t, const TokenProgram&);
template void write_step<float>(const StepValues<float>&, const StepRows&);
template void write_step<double>(const StepValues<double>&, const StepRows&);

}  // namespace leapquant::ref
