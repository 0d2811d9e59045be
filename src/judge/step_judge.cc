// SPDX-License-Identifier: Apache-2.0
#include "judge/step_judge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/window_copy.h"
#include "judge/parallel.h"
#include "judge/program_copy.h"
#include "ref/state.h"
#include "ref/step.h"

namespace leapquant::judge {
namespace {

// Half the distance of neighbours around `magnitude` in a format with so many stored mantissa bits.
double half_step(double magnitude, int mantissa_bits, int smallest_exponent) {
  const int exponent = magnitude == 0 ? smallest_exponent : std::max(std::ilogb(magnitude), smallest_exponent);
  return std::ldexp(0.5, exponent - mantissa_bits);
}

double half_step_of(Bfloat16 /*type*/, double magnitude) { return half_step(magnitude, 7, -126); }
double half_step_of(Half /*type*/, double magnitude) { return half_step(magnitude, 10, -14); }
double half_step_of(float /*type*/, double /*magnitude*/) { return 0; }

double widen(Bfloat16 value) { return to_float(value); }
double widen(Half value) { return to_float(value); }
double widen(float value) { return value; }

// The share of `allowance` that an element takes beyond half a step of its format.
template <class T>
double share_of(T element, double exact, double allowance) {
  const double value = widen(element);
  const double error = std::fabs(value - exact);
  if (error == 0) return 0;
  const double excess = error - half_step_of(element, std::max(std::fabs(value), std::fabs(exact)));
  if (allowance == 0 || !std::isfinite(value)) return std::numeric_limits<double>::infinity();
  return std::max(0.0, excess / allowance);
}

// Collects the elements of one program.
class ProgramScore {
 public:
  template <class T>
  void see(StepOutput output, const T* elements, std::span<const double> exact, std::span<const double> allowance) {
    double& worst = judgement_.worst[static_cast<size_t>(output)];
    for (size_t i = 0; i < exact.size(); ++i) {
      const double share = share_of(elements[i], exact[i], allowance[i]);
      judgement_.finite = judgement_.finite && std::isfinite(widen(elements[i]));
      // Written so that a share that is no number is over.
      if (!(share <= 1)) ++judgement_.elements_over;
      worst = std::max(worst, std::isnan(share) ? std::numeric_limits<double>::infinity() : share);
    }
  }

  StepJudgement finish(int64_t program) {
    judgement_.programs = 1;
    judgement_.over = judgement_.elements_over == 0 ? 0 : 1;
    judgement_.worst_program = program;
    return judgement_;
  }

 private:
  StepJudgement judgement_;
};

// A program with every number replaced by its magnitude.
class Magnitudes {
 public:
  Magnitudes(Geometry geometry, const CheckpointProgram& checkpoint, const WindowProgram& window) {
    geometry.num_heads = geometry.num_key_heads = 1;
    checkpoint_ = CheckpointTensors(geometry, 1);
    window_ = WindowTensors(geometry, 1);
    copy_checkpoint(geometry, checkpoint, this->checkpoint());
    copy_window(geometry, window, this->window());
    // -128, which no family draws, has no magnitude of its own.
    for (int8_t& code : checkpoint_.codes) code = static_cast<int8_t>(std::min(std::abs(int{code}), 127));
    drop_signs(checkpoint_.s_k);
    drop_signs(checkpoint_.s_v);
    drop_signs(checkpoint_.u);
    drop_signs(checkpoint_.q);
    drop_signs(window_.kbuf);
    drop_signs(window_.ubuf);
    drop_signs(window_.w);
    drop_signs(window_.gbuf);
  }

  CheckpointProgram checkpoint() const { return checkpoint_.view().at(0, 0); }
  WindowProgram window() const { return window_.view().at(0, 0); }

 private:
  static void drop_signs(std::vector<float>& values) {
    for (float& value : values) value = std::fabs(value);
  }
  template <class T>
  static void drop_signs(std::vector<T>& values) {
    for (T& value : values) value.bits &= 0x7FFF;
  }

  CheckpointTensors checkpoint_;
  WindowTensors window_;
};

std::vector<double> magnitudes_of(std::vector<double> values, double factor) {
  for (double& value : values) value = factor * std::fabs(value);
  return values;
}

// M of output and update, times the bound.
struct Allowances {
  std::vector<double> output;
  std::vector<double> update;
};

Allowances allowances_of(const Geometry& geometry, const Magnitudes& program, int64_t entries,
                         const ref::StepGates<double>& gates, const TokenProgram& token) {
  const auto key_dim = static_cast<size_t>(geometry.key_dim);
  const auto value_dim = static_cast<size_t>(geometry.value_dim);
  const std::vector<double> state = ref::combined_state<double>(geometry, program.checkpoint(), program.window(),
                                                                entries, gates.checkpoint_decay, gates.decay);
  const std::vector<double> key = magnitudes_of(ref::normalized<double>(token.key, geometry.key_dim), 1);
  const std::vector<double> query = magnitudes_of(ref::normalized<double>(token.query, geometry.key_dim),
                                                  1 / std::sqrt(static_cast<double>(key_dim)));
  const double beta = to_float(beta_of(*token.beta_input));
  double key_query = 0;
  for (size_t k = 0; k < key_dim; ++k) key_query += key[k] * query[k];
  Allowances result{std::vector<double>(value_dim), std::vector<double>(value_dim)};
  for (size_t v = 0; v < value_dim; ++v) {
    double seen = std::fabs(to_float(token.value[v]));
    double asked = 0;
    for (size_t k = 0; k < key_dim; ++k) {
      seen += state[v * key_dim + k] * key[k];
      asked += state[v * key_dim + k] * query[k];
    }
    result.update[v] = kStepBound * beta * seen;
    result.output[v] = kStepBound * asked + key_query * result.update[v];
  }
  return result;
}

// What a product of GDN's decays may be off by: 0 where it has a factor of 0.
double decay_allowance(float before, double exact) {
  return before == 0 ? 0 : kStepBound * std::fabs(exact) + 0x1p-149;
}

// KDA leaves the weights as they are, GDN multiplies those of occupied entries; the new entry's is 1.
void judge_weights(const Geometry& geometry, const WindowProgram& before, int64_t entries, double token_decay,
                   const float* weight, ProgramScore& score) {
  std::vector<double> exact(before.window_weight, before.window_weight + geometry.window);
  std::vector<double> allowance(exact.size(), 0.0);
  for (size_t j = 0; geometry.gate == Gate::kGdn && j < static_cast<size_t>(entries); ++j) {
    exact[j] *= token_decay;
    allowance[j] = decay_allowance(before.window_weight[j], exact[j]);
  }
  exact[static_cast<size_t>(entries)] = 1;
  score.see(StepOutput::kWeight, weight, exact, allowance);
}

StepJudgement judge_program(const StepInputs& inputs, int64_t n, const StepRows& rows, const WindowProgram& weights) {
  const Geometry& geometry = inputs.geometry;
  const int64_t item = n / geometry.num_heads;
  const int64_t head = n % geometry.num_heads;
  const CheckpointProgram checkpoint = inputs.checkpoint.view().at(item, head);
  const WindowProgram window = inputs.window.view().at(item, head);
  const TokenProgram token = inputs.token.view().at(item, head);
  const int64_t entries = inputs.h[n];
  const ref::StepValues<double> exact =
      ref::step_values<double>(geometry, inputs.gate, checkpoint, window, entries, token);
  const Allowances allowed =
      allowances_of(geometry, Magnitudes(geometry, checkpoint, window), entries, exact.gates, token);

  ProgramScore score;
  score.see(StepOutput::kOutput, rows.output, exact.output, allowed.output);
  score.see(StepOutput::kKey, rows.key, exact.key, magnitudes_of(exact.key, kStepBound));
  score.see(StepOutput::kUpdate, rows.update, exact.update, allowed.update);
  judge_weights(geometry, window, entries, exact.gates.decay[0], weights.window_weight, score);
  if (geometry.gate == Gate::kGdn) {
    const std::vector<double>& decay = exact.gates.checkpoint_decay;
    score.see(StepOutput::kDecay, weights.decay, decay, std::vector{decay_allowance(*window.decay, decay[0])});
    return score.finish(n);
  }
  std::vector<double> log_decay = magnitudes_of(exact.gates.log_decay, kStepBound);
  for (double& allowance : log_decay) allowance += kStepBound;
  score.see(StepOutput::kGate, rows.gate, exact.gates.decay, magnitudes_of(exact.gates.decay, kStepBound));
  score.see(StepOutput::kLogDecay, rows.log_decay, exact.gates.log_decay, log_decay);
  return score.finish(n);
}

}  // namespace

double StepJudgement::worst_use() const { return *std::max_element(worst.begin(), worst.end()); }

void include(StepJudgement& all, const StepJudgement& run) {
  if (all.worst_program < 0 || run.worst_use() > all.worst_use()) {
    all.worst_program = run.worst_program;
    all.worst_seed = run.worst_seed;
  }
  all.programs += run.programs;
  all.over += run.over;
  all.elements_over += run.elements_over;
  all.finite = all.finite && run.finite;
  for (size_t i = 0; i < kStepOutputCount; ++i) all.worst[i] = std::max(all.worst[i], run.worst[i]);
}

StepJudgement judge_step(const StepInputs& inputs, const StepTensors& result, int threads) {
  std::vector<StepJudgement> programs(static_cast<size_t>(inputs.programs()));
  StepTensors& rows = const_cast<StepTensors&>(result);  // views never say const
  parallel_for(inputs.programs(), threads, [&](int64_t n) {
    programs[static_cast<size_t>(n)] = judge_program(inputs, n, rows.rows(n), rows.weights(n));
  });
  StepJudgement judgement;
  for (const StepJudgement& program : programs) include(judgement, program);
  return judgement;
}

}  // namespace leapquant::judge
