// SPDX-License-Identifier: Apache-2.0
#include "cuda/slots/arguments.h"

#include "core/checkpoint_layout.h"
#include "cuda/common/arguments.h"

namespace leapquant::cuda::slots {
namespace {

constexpr uint32_t kHalfOnes = uint32_t{kHalfOne} << 16 | kHalfOne;
constexpr uint32_t kFloatOne = 0x3F800000u;

template <class T>
Part part_of(const Strided<T>& tensor, int64_t bytes, uint32_t fresh) {
  return {in_bytes(tensor), static_cast<int32_t>(bytes), fresh};
}

}  // namespace

Parts parts_of(const Geometry& g, const CheckpointView& checkpoint, const WindowView& window) {
  Parts parts{};
  parts.of[kRegion] = part_of(checkpoint.codes, region_offsets(g).end, 0);
  parts.of[kWindowKey] = part_of(window.window_key, int64_t{g.window} * g.key_dim * 2, 0);
  parts.of[kWindowUpdate] = part_of(window.window_update, int64_t{g.window} * g.value_dim * 2, 0);
  parts.of[kWindowWeight] = part_of(window.window_weight, int64_t{g.window} * 4, 0);
  if (g.gate == Gate::kGdn) {
    parts.of[kDecay] = part_of(window.decay, 4, kFloatOne);
    return parts;
  }
  parts.of[kWindowGate] = part_of(window.window_gate, int64_t{g.window} * g.key_dim * 2, kHalfOnes);
  parts.of[kDecay] = part_of(window.log_decay, int64_t{g.key_dim} * 4, 0);
  return parts;
}

Status check_parts(const Parts& parts, const ProgramCounts& counts) {
  constexpr const char* kNames[kPartCount] = {"codes", "kbuf", "ubuf", "w", "gbuf", "pcum"};
  for (int i = 0; i < kPartCount; ++i) {
    if (parts.of[i].bytes < kAlignment) continue;
    LQ_RETURN_IF_ERROR(check_alignment(kNames[i], parts.of[i].tensor, counts));
  }
  return {};
}

Result<SlotArguments> arguments_of(const SlotPlan& plan) {
  const int64_t programs = plan.count * plan.geometry.num_heads;
  LQ_RETURN_IF_ERROR(check_programs("writes", programs));
  SlotArguments arguments{.parts = parts_of(plan.geometry, plan.checkpoint, plan.window),
                          .fill_count = in_bytes(plan.pool.fill_count),
                          .source_index = plan.source_index,
                          .target_index = plan.pool.slot_index,
                          .num_slots = plan.pool.num_slots,
                          .programs = static_cast<uint32_t>(programs),
                          .heads = static_cast<uint32_t>(plan.geometry.num_heads),
                          .errors = plan.pool.errors};
  LQ_RETURN_IF_ERROR(check_parts(arguments.parts, {plan.pool.num_slots, plan.geometry.num_heads}));
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
