// SPDX-License-Identifier: Apache-2.0
#include "cuda/slots/arguments.h"

#include "core/checkpoint_layout.h"
#include "cuda/common/arguments.h"

namespace leapquant::cuda::slots {
namespace {

constexpr uint32_t kHalfOnes = uint32_t{kHalfOne} << 16 | kHalfOne;
constexpr uint32_t kFloatOne = 0x3F800000u;

void set_parts(const SlotPlan& plan, SlotArguments& arguments) {
  const Geometry& g = plan.geometry;
  const auto part = [](const auto& tensor, int64_t bytes, uint32_t fresh) {
    return Part{in_bytes(tensor), static_cast<int32_t>(bytes), fresh};
  };
  arguments.part[kRegion] = part(plan.checkpoint.codes, region_offsets(g).end, 0);
  arguments.part[kWindowKey] = part(plan.window.window_key, int64_t{g.window} * g.key_dim * 2, 0);
  arguments.part[kWindowUpdate] = part(plan.window.window_update, int64_t{g.window} * g.value_dim * 2, 0);
  arguments.part[kWindowWeight] = part(plan.window.window_weight, int64_t{g.window} * 4, 0);
  if (g.gate == Gate::kGdn) {
    arguments.part[kDecay] = part(plan.window.decay, 4, kFloatOne);
    return;
  }
  arguments.part[kWindowGate] = part(plan.window.window_gate, int64_t{g.window} * g.key_dim * 2, kHalfOnes);
  arguments.part[kDecay] = part(plan.window.log_decay, int64_t{g.key_dim} * 4, 0);
}

}  // namespace

Result<SlotArguments> arguments_of(const SlotPlan& plan) {
  const int64_t programs = plan.count * plan.geometry.num_heads;
  LQ_RETURN_IF_ERROR(check_programs("writes", programs));
  SlotArguments arguments{.part = {},
                          .fill_count = in_bytes(plan.pool.fill_count),
                          .source_index = plan.source_index,
                          .target_index = plan.pool.slot_index,
                          .num_slots = plan.pool.num_slots,
                          .programs = static_cast<uint32_t>(programs),
                          .heads = static_cast<uint32_t>(plan.geometry.num_heads),
                          .index_error = plan.pool.errors->first_position + static_cast<int>(ErrorKind::kIndex)};
  set_parts(plan, arguments);
  constexpr const char* kNames[kPartCount] = {"codes", "kbuf", "ubuf", "w", "gbuf", "pcum"};
  for (int i = 0; i < kPartCount; ++i) {
    if (arguments.part[i].bytes < 16) continue;
    LQ_RETURN_IF_ERROR(
        check_alignment(kNames[i], arguments.part[i].tensor, {plan.pool.num_slots, plan.geometry.num_heads}));
  }
  return arguments;
}

CounterArguments counters_of(const FlushPlan& plan) {
  return {.fill_count = in_bytes(plan.due.fill_count),
          .window_weight = in_bytes(plan.window.window_weight),
          .slot_index = plan.due.slot_index,
          .num_slots = plan.due.num_slots,
          .programs = static_cast<uint32_t>(plan.programs()),
          .heads = static_cast<uint32_t>(plan.geometry.num_heads)};
}

}  // namespace leapquant::cuda::slots
