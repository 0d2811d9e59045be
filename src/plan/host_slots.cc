// SPDX-License-Identifier: Apache-2.0
//
// Whole slots in host memory: a matter of bytes, the same for every backend there.
#include <cstring>

#include "core/checkpoint_layout.h"
#include "core/window_copy.h"
#include "plan/host_backend.h"

namespace leapquant {
namespace {

// Whether an index names a slot of the pool. One beyond it is recorded.
bool names_slot(const SlotPlan& plan, int64_t slot, int64_t position) {
  if (slot <= 0) return false;
  if (slot < plan.pool.num_slots) return true;
  record_error(*plan.pool.errors, ErrorKind::kIndex, position);
  return false;
}

void reset_program(const SlotPlan& plan, int64_t slot, int64_t head) {
  const Geometry& geometry = plan.geometry;
  std::memset(plan.checkpoint.codes.at(slot, head), 0, static_cast<size_t>(region_offsets(geometry).end));
  clear_window(geometry, plan.window.at(slot, head));
  *plan.pool.fill_count.at(slot, head) = 0;
}

void copy_program(const SlotPlan& plan, int64_t source, int64_t target, int64_t head) {
  const Geometry& geometry = plan.geometry;
  std::memcpy(plan.checkpoint.codes.at(target, head), plan.checkpoint.codes.at(source, head),
              static_cast<size_t>(region_offsets(geometry).end));
  copy_window(geometry, plan.window.at(source, head), plan.window.at(target, head));
  *plan.pool.fill_count.at(target, head) = *plan.pool.fill_count.at(source, head);
}

}  // namespace

Status HostBackend::reset_slots(const SlotPlan& plan, void* /*stream*/) {
  for (int64_t i = 0; i < plan.count; ++i) {
    const int64_t slot = plan.pool.slot_index[i];
    if (!names_slot(plan, slot, i)) continue;
    for (int64_t head = 0; head < plan.geometry.num_heads; ++head) reset_program(plan, slot, head);
  }
  return {};
}

Status HostBackend::copy_slots(const SlotPlan& plan, void* /*stream*/) {
  for (int64_t i = 0; i < plan.count; ++i) {
    const int64_t source = plan.source_index[i];
    const int64_t target = plan.pool.slot_index[i];
    const bool from_slot = names_slot(plan, source, i);
    const bool to_slot = names_slot(plan, target, i);
    if (!from_slot || !to_slot) continue;
    for (int64_t head = 0; head < plan.geometry.num_heads; ++head) copy_program(plan, source, target, head);
  }
  return {};
}

}  // namespace leapquant
