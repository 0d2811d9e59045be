// SPDX-License-Identifier: Apache-2.0
//
// The boundary of calls that work on whole slots.
#include <fmt/format.h>

#include "api/validate.h"

namespace leapquant::api {
namespace {

// Every slot that is written is written once and read by nobody: in any order a copy then gives the same bytes. Every
// pair is compared, since calls allocate nothing; lists are short. Only host memory can be looked at.
Status check_apart(const SlotPlan& plan) {
  const int32_t* const sources = plan.source_index;
  const int32_t* const targets = plan.pool.slot_index;
  for (int64_t i = 0; i < plan.count; ++i) {
    if (targets[i] <= 0) continue;
    for (int64_t j = 0; j < plan.count; ++j) {
      if (targets[i] == sources[j]) {
        return invalid_argument(fmt::format(
            "dst: expected slots that are not copied from, got slot {} at dst {} and src {}", targets[i], i, j));
      }
      if (i != j && targets[i] == targets[j]) {
        return invalid_argument(fmt::format("dst: slot {} stands at positions {} and {}", targets[i], i, j));
      }
    }
  }
  return {};
}

}  // namespace

Result<SlotPlan> plan_reset(const Pool& pool, const lq_tensor* idx) {
  const Result<TensorView> indices = to_indices(pool, idx);
  if (!indices.ok()) return indices.status();
  return pool.slot_plan(values_of(indices.value()), indices.value().shape[0]);
}

Result<SlotPlan> plan_copy(const Pool& pool, const lq_tensor* sources, const lq_tensor* targets) {
  const Result<TensorView> from = to_indices(pool, sources, "src");
  if (!from.ok()) return from.status();
  const Result<TensorView> to = to_indices(pool, targets, "dst");
  if (!to.ok()) return to.status();
  const int64_t count = from.value().shape[0];
  if (to.value().shape[0] != count) {
    return invalid_argument(
        fmt::format("tensor 'dst': expected as many entries as 'src' has, {}, got {}", count, to.value().shape[0]));
  }
  const SlotPlan plan = pool.slot_plan(values_of(to.value()), count, values_of(from.value()));
  if (pool.backend().state().device.type == DeviceType::kCpu) LQ_RETURN_IF_ERROR(check_apart(plan));
  return plan;
}

}  // namespace leapquant::api
