// SPDX-License-Identifier: Apache-2.0
#include "cuda/step/arguments.h"

#include "cuda/common/arguments.h"

namespace leapquant::cuda::step {
namespace {

static_assert(static_cast<int>(GateKind::kSoftplus) == static_cast<int>(GateFunction::kSoftplus));
static_assert(static_cast<int>(GateKind::kBounded) == static_cast<int>(GateFunction::kBounded));
static_assert(static_cast<int>(GateKind::kGiven) == static_cast<int>(GateFunction::kGiven));
static_assert(static_cast<int>(Trouble::kIndex) == static_cast<int>(ErrorKind::kIndex));
static_assert(static_cast<int>(Trouble::kNonFinite) == static_cast<int>(ErrorKind::kNonFinite));
static_assert(static_cast<int>(Trouble::kUnflushed) == static_cast<int>(ErrorKind::kUnflushed));
static_assert(static_cast<int>(Trouble::kCounter) == static_cast<int>(ErrorKind::kCounter));

bool by_head(const StepPlan& plan) { return plan.geometry.gate == Gate::kGdn; }

void set_state(const StepPlan& plan, StepArguments& arguments) {
  ProgramBytes* const tensor = arguments.tensor;
  tensor[kCodes] = in_bytes(plan.checkpoint.codes);
  tensor[kKeyScale] = in_bytes(plan.checkpoint.key_scale);
  tensor[kValueScale] = in_bytes(plan.checkpoint.value_scale);
  tensor[kKeyFactor] = in_bytes(plan.checkpoint.key_factor);
  tensor[kValueFactor] = in_bytes(plan.checkpoint.value_factor);
  tensor[kWindowKey] = in_bytes(plan.window.window_key);
  tensor[kWindowUpdate] = in_bytes(plan.window.window_update);
  tensor[kWindowWeight] = in_bytes(plan.window.window_weight);
  tensor[kWindowGate] = in_bytes(plan.window.window_gate);
  tensor[kCheckpointDecay] = by_head(plan) ? in_bytes(plan.window.decay) : in_bytes(plan.window.log_decay);
  constexpr int64_t kHalfBytes = sizeof(Half);
  arguments.factor_row = {plan.checkpoint.key_factor_row * kHalfBytes, plan.checkpoint.value_factor_row * kHalfBytes};
}

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
  tensor[kTargetCheckpointDecay] = by_head(plan) ? in_bytes(plan.target.decay) : in_bytes(plan.target.log_decay);
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
Status check_state_alignment(const StepPlan& plan, const StepArguments& arguments) {
  constexpr const char* kNames[] = {"codes", "s_k", "s_v", "u", "q", "kbuf", "ubuf", "w", "gbuf", "pcum"};
  const ProgramCounts counts{plan.in_place ? plan.pool.num_slots : plan.batch, plan.geometry.num_heads};
  const bool several_rows = plan.geometry.rank > 1;
  for (int i = kCodes; i <= kCheckpointDecay; ++i) {
    if (i == kCheckpointDecay && arguments.decay == Decay::kByHead) continue;  // a number a program
    int64_t row = 0;
    if (several_rows && i == kKeyFactor) row = arguments.factor_row.key;
    if (several_rows && i == kValueFactor) row = arguments.factor_row.value;
    LQ_RETURN_IF_ERROR(check_alignment(kNames[i], arguments.tensor[i], counts, row));
  }
  return {};
}

}  // namespace

Result<StepArguments> arguments_of(const StepPlan& plan) {
  LQ_RETURN_IF_ERROR(check_programs("steps", plan.programs()));
  StepArguments arguments{.tensor = {},
                          .factor_row = {},
                          .slot_index = plan.in_place ? plan.pool.slot_index : nullptr,
                          .num_slots = plan.pool.num_slots,
                          .first_error_position = plan.in_place ? plan.pool.errors->first_position : nullptr,
                          .programs = static_cast<uint32_t>(plan.programs()),
                          .heads = static_cast<uint32_t>(plan.geometry.num_heads),
                          .group_size = static_cast<uint32_t>(plan.token.group_size),
                          .rank = static_cast<uint32_t>(plan.geometry.rank),
                          .decay = by_head(plan) ? Decay::kByHead : Decay::kByChannel,
                          .gate = static_cast<GateKind>(plan.gate.function),
                          .lower_bound = plan.gate.lower_bound,
                          .code_exponents = kCodeExponents};
  set_state(plan, arguments);
  set_targets(plan, arguments);
  set_token(plan.token, arguments);
  LQ_RETURN_IF_ERROR(check_state_alignment(plan, arguments));
  return arguments;
}

}  // namespace leapquant::cuda::step
