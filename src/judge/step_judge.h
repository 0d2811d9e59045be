// SPDX-License-Identifier: Apache-2.0
//
// The judge of the step: every element of every result against the formula in double (beta rounded to bf16).
//
// With M the same expression, every term replaced by its magnitude:
//   o, k_row, u_row   within half a bf16 step + 1e-5 M
//   g_row             within half an fp16 step + 1e-5 |exact|
//   w_new             equal; GDN: within 1e-5 |exact| + 2^-149
//   pcum_new          within 1e-5 (|exact| + 1)
//   p_new             within 1e-5 |exact| + 2^-149
// Half a step is that of max(|x|, |exact|), subnormals included. All finite; an element whose M is 0 is exactly 0.
//
// What is shown is the share of its 1e-5 that an element takes, half a step left aside: 1 is the bound.
#pragma once

#include <array>
#include <cstdint>

#include "judge/step_tensors.h"

namespace leapquant::judge {

inline constexpr double kStepBound = 1e-5;

enum class StepOutput : int32_t {
  kOutput = 0,
  kKey = 1,
  kUpdate = 2,
  kGate = 3,
  kWeight = 4,
  kLogDecay = 5,
  kDecay = 6
};
inline constexpr size_t kStepOutputCount = 7;
inline constexpr std::array<const char*, kStepOutputCount> kStepOutputNames = {"o",     "k_row",    "u_row", "g_row",
                                                                               "w_new", "pcum_new", "p_new"};
// Whether a gate has it.
constexpr bool has_output(Gate gate, StepOutput output) {
  const bool kda = output == StepOutput::kGate || output == StepOutput::kLogDecay;
  return gate == Gate::kKda ? output != StepOutput::kDecay : !kda;
}

struct StepJudgement {
  int64_t programs = 0;
  int64_t over = 0;                                 // programs with an element over its bound
  int64_t elements_over = 0;                        // of all of them
  bool finite = true;                               // every element of every result
  std::array<double, kStepOutputCount> worst = {};  // largest share of the bound, each result
  int64_t worst_program = -1;                       // item * H + head of the largest share of all
  uint64_t worst_seed = 0;                          // whose inputs that program belongs to

  bool passes() const { return over == 0; }
  double worst_use() const;
};

// Adds a run, or a program, to the judgement of several.
void include(StepJudgement& all, const StepJudgement& run);

// Judges every program of a step, on `threads` threads (0: one for each CPU). The result doesn't depend on them.
StepJudgement judge_step(const StepInputs& inputs, const StepTensors& result, int threads);

}  // namespace leapquant::judge
