// SPDX-License-Identifier: Apache-2.0
#include "cuda/state/arguments.h"

#include "cuda/common/arguments.h"
#include "cuda/slots/arguments.h"

namespace leapquant::cuda::state {
namespace {

static_assert(static_cast<int>(Trouble::kIndex) == static_cast<int>(ErrorKind::kIndex));
static_assert(static_cast<int>(Trouble::kNonFinite) == static_cast<int>(ErrorKind::kNonFinite));
static_assert(static_cast<int>(Trouble::kCounter) == static_cast<int>(ErrorKind::kCounter));

States states_of(const DenseStateView& states) {
  const int64_t bytes = dtype_bytes(states.dtype);
  return {.tensor = {static_cast<char*>(states.base), states.item_stride * bytes, states.head_stride * bytes},
          .by_key = states.order == StateOrder::kKeyValue,
          .narrow = states.dtype == DType::kBfloat16};
}

StateArguments arguments_of(const StatePlan& plan) {
  constexpr int64_t kHalfBytes = sizeof(Half);
  const CheckpointView& checkpoint = plan.checkpoint;
  const WindowView& window = plan.window;
  const bool by_head = plan.geometry.gate == Gate::kGdn;
  return {.tensor = {in_bytes(checkpoint.codes), in_bytes(checkpoint.key_scale), in_bytes(checkpoint.value_scale),
                     in_bytes(checkpoint.key_factor), in_bytes(checkpoint.value_factor), in_bytes(window.window_key),
                     in_bytes(window.window_update), in_bytes(window.window_weight), in_bytes(window.window_gate),
                     by_head ? in_bytes(window.decay) : in_bytes(window.log_decay), in_bytes(plan.pool.fill_count)},
          .factor_row = {checkpoint.key_factor_row * kHalfBytes, checkpoint.value_factor_row * kHalfBytes},
          .states = states_of(plan.states),
          .slot_index = plan.pool.slot_index,
          .num_slots = plan.pool.num_slots,
          .first_error_position = plan.pool.errors->first_position,
          .programs = static_cast<uint32_t>(plan.programs()),
          .heads = static_cast<uint32_t>(plan.geometry.num_heads),
          .rank = static_cast<uint32_t>(plan.geometry.rank),
          .decay_by_head = by_head};
}

}  // namespace

Result<ImportArguments> import_arguments(const StatePlan& plan) {
  LQ_RETURN_IF_ERROR(check_programs("imports", plan.programs()));
  const ImportArguments arguments{.state = arguments_of(plan),
                                  .start_basis = plan.start_basis,
                                  .first_entry = in_bytes(plan.first_entry),
                                  .parts = slots::parts_of(plan.geometry, plan.checkpoint, plan.window)};
  LQ_RETURN_IF_ERROR(slots::check_parts(arguments.parts, {plan.pool.num_slots, plan.geometry.num_heads}));
  return arguments;
}

// Only the codes are read 16 bytes at a time.
Result<StateArguments> export_arguments(const StatePlan& plan) {
  LQ_RETURN_IF_ERROR(check_programs("exports", plan.programs()));
  const StateArguments arguments = arguments_of(plan);
  LQ_RETURN_IF_ERROR(
      check_alignment("codes", arguments.tensor[kCodes], {plan.pool.num_slots, plan.geometry.num_heads}));
  return arguments;
}

}  // namespace leapquant::cuda::state
