// SPDX-License-Identifier: Apache-2.0
#include "cuda/state/arguments.h"

#include "cuda/common/arguments.h"
#include "cuda/slots/arguments.h"

namespace leapquant::cuda::state {
namespace {

States states_of(const DenseStateView& states) {
  const int64_t bytes = dtype_bytes(states.dtype);
  return {.tensor = {static_cast<char*>(states.base), states.item_stride * bytes, states.head_stride * bytes},
          .by_key = states.order == StateOrder::kKeyValue,
          .narrow = states.dtype == DType::kBfloat16};
}

StateArguments arguments_of(const StatePlan& plan) {
  StateArguments arguments{.tensor = {},
                           .factor_row = factor_rows(plan.checkpoint),
                           .states = states_of(plan.states),
                           .slot_index = plan.pool.slot_index,
                           .num_slots = plan.pool.num_slots,
                           .errors = plan.pool.errors,
                           .programs = static_cast<uint32_t>(plan.programs()),
                           .heads = static_cast<uint32_t>(plan.geometry.num_heads),
                           .rank = static_cast<uint32_t>(plan.geometry.rank),
                           .decay = decay_of(plan.geometry)};
  set_checkpoint(plan.checkpoint, arguments.tensor);
  set_window(plan.window, arguments.decay, arguments.tensor);
  arguments.tensor[kFillCount] = in_bytes(plan.pool.fill_count);
  return arguments;
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
