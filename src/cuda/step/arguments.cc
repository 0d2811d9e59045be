// SPDX-License-Identifier: Apache-2.0
#include "cuda/step/arguments.h"

#include "cuda/common/arguments.h"

namespace leapquant::cuda::step {
namespace {

static_assert(static_cast<int>(GateKind::kSoftplus) == static_cast<int>(GateFunction::kSoftplus));
static_assert(static_cast<int>(GateKind::kBounded) == static_cast<int>(GateFunction::kBounded));
static_assert(static_cast<int>(GateKind::kGiven) == static_cast<int>(GateFunction::kGiven));

// Counters and the rows of the new entry.
void set_targets(const StepPlan& plan, StepArguments& arguments) {
  ProgramBytes* const tensor = arguments.tensor;
  tensor[kOutput] = in_bytes(plan.target.output);
  if (plan.in_place) {
    tensor[kFillCount] = in_bytes(plan.pool.fill_count);
    tensor[kTargetKey] = tensor[kWindowKey];
    tensor[kTargetUpdate] = tensor[kWindowUpdate];
    tensor[kTargetWeight] = tensor[kWindowWeight];
    tensor[kTargetGate] = tensor[kWindowGate];
    tensor[kTargetCheckpointDecay] = tensor[kCheckpointDecay];
    return;
  }
  tensor[kFillCount] = in_bytes(plan.entries);
  tensor[kTargetKey] = in_bytes(plan.target.key);
  tensor[kTargetUpdate] = in_bytes(plan.target.update);
  tensor[kTargetWeight] = in_bytes(plan.target.weight);
  tensor[kTargetGate] = in_bytes(plan.target.gate);
  tensor[kTargetCheckpointDecay] =
      arguments.decay == Decay::kByHead ? in_bytes(plan.target.decay) : in_bytes(plan.target.log_decay);
}

void set_token(const TokenView& token, StepArguments& arguments) {
  ProgramBytes* const tensor = arguments.tensor;
  tensor[kQueryInput] = in_bytes(token.query);
  tensor[kKeyInput] = in_bytes(token.key);
  tensor[kValueInput] = in_bytes(token.value);
  tensor[kBetaInput] = in_bytes(token.beta_input);
  tensor[kGateInput] = in_bytes(token.gate_input);
  tensor[kLogRate] = in_bytes(token.log_rate);
  tensor[kGateBias] = in_bytes(token.gate_bias);
  tensor[kLogGate] = in_bytes(token.log_gate);
}

// Token and results are read and written element by element, and may lie anywhere.
Status check_state(const StepPlan& plan) {
  const ProgramCounts counts{plan.in_place ? plan.pool.num_slots : plan.batch, plan.geometry.num_heads};
  LQ_RETURN_IF_ERROR(check_checkpoint("", plan.checkpoint, counts, plan.geometry.rank));
  return check_window(plan.window, counts);
}

}  // namespace

Result<StepArguments> arguments_of(const StepPlan& plan) {
  LQ_RETURN_IF_ERROR(check_programs("steps", plan.programs()));
  LQ_RETURN_IF_ERROR(check_state(plan));
  StepArguments arguments{.tensor = {},
                          .factor_row = factor_rows(plan.checkpoint),
                          .slot_index = plan.in_place ? plan.pool.slot_index : nullptr,
                          .num_slots = plan.pool.num_slots,
                          .errors = plan.in_place ? plan.pool.errors : nullptr,
                          .programs = static_cast<uint32_t>(plan.programs()),
                          .heads = static_cast<uint32_t>(plan.geometry.num_heads),
                          .group_size = static_cast<uint32_t>(plan.token.group_size),
                          .rank = static_cast<uint32_t>(plan.geometry.rank),
                          .decay = decay_of(plan.geometry),
                          .gate = static_cast<GateKind>(plan.gate.function),
                          .lower_bound = plan.gate.lower_bound,
                          .code_exponents = kCodeExponents};
  set_checkpoint(plan.checkpoint, arguments.tensor);
  set_window(plan.window, arguments.decay, arguments.tensor);
  set_targets(plan, arguments);
  set_token(plan.token, arguments);
  return arguments;
}

}  // namespace leapquant::cuda::step
