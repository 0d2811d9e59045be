// SPDX-License-Identifier: Apache-2.0
//
// The boundary of imports and exports of dense states.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "api/program_check.h"
#include "api/validate.h"

namespace leapquant::api {
namespace {

enum class Direction { kIn, kOut };

// The states of `count` sequences: strided over batch and head on the way in, contiguous on the way out.
Result<DenseStateView> check_states(const Pool& pool, const lq_tensor* state, lq_state_order order, int64_t count,
                                    Direction direction) {
  if (order != LQ_STATE_VK && order != LQ_STATE_KV) {
    return invalid_argument(fmt::format("order: expected 1 ([V, K]) or 2 ([K, V]), got {}", static_cast<int>(order)));
  }
  if (state == nullptr) return invalid_argument("tensor 'state': expected a tensor, got NULL");
  const Geometry& geometry = pool.geometry();
  std::array<int64_t, 4> shape = {count, geometry.num_heads, geometry.value_dim, geometry.key_dim};
  if (order == LQ_STATE_KV) std::swap(shape[2], shape[3]);
  const bool narrow = direction == Direction::kIn && state->dtype == LQ_BFLOAT16;
  Checker checker(pool.backend().state().device);
  const TensorView view = checker.tensor("state", *state, narrow ? DType::kBfloat16 : DType::kFloat32, shape,
                                         direction == Direction::kIn ? 2 : 0);
  LQ_RETURN_IF_ERROR(checker.status());
  LQ_RETURN_IF_ERROR(check_outside_pool(pool, {"state", view}));
  return DenseStateView{.base = view.data,
                        .dtype = view.dtype,
                        .order = static_cast<StateOrder>(order),
                        .item_stride = view.strides[0],
                        .head_stride = view.strides[1]};
}

Status add_first_entries(const Pool& pool, const lq_tensor& offset, StatePlan& plan) {
  const Device device = pool.backend().state().device;
  Checker checker(device);
  const TensorView view = checker.tensor("offset", offset, DType::kInt32, {plan.batch, plan.geometry.num_heads}, 2);
  LQ_RETURN_IF_ERROR(checker.status());
  LQ_RETURN_IF_ERROR(check_outside_pool(pool, {"offset", view}));
  plan.first_entry = {static_cast<const int32_t*>(view.data), view.strides[0], view.strides[1]};
  return check_entry_counts("offset", "expected counters from 0 to {}", plan.first_entry, plan.batch, plan.geometry,
                            device);
}

}  // namespace

Result<StatePlan> plan_import(const Pool& pool, const ImportRequest& request) {
  const Result<TensorView> indices = to_indices(pool, request.idx);
  if (!indices.ok()) return indices.status();
  const int64_t count = indices.value().shape[0];
  const Result<DenseStateView> states = check_states(pool, request.state, request.order, count, Direction::kIn);
  if (!states.ok()) return states.status();
  const Result<TensorView> basis = to_start_basis(pool, request.start_basis);
  if (!basis.ok()) return basis.status();
  StatePlan plan = pool.state_plan(values_of(indices.value()), count);
  plan.states = states.value();
  plan.start_basis = static_cast<const float*>(basis.value().data);
  if (request.offset != nullptr) LQ_RETURN_IF_ERROR(add_first_entries(pool, *request.offset, plan));
  return plan;
}

Result<StatePlan> plan_export(const Pool& pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order) {
  const Result<TensorView> indices = to_indices(pool, idx);
  if (!indices.ok()) return indices.status();
  const int64_t count = indices.value().shape[0];
  const Result<DenseStateView> states = check_states(pool, state, order, count, Direction::kOut);
  if (!states.ok()) return states.status();
  const TensorView written =
      contiguous_view(state->data, DType::kFloat32, pool.backend().state().device, {state->shape, 4});
  LQ_RETURN_IF_ERROR(check_disjoint({"state", written}, "", {"idx", indices.value()}, ""));
  StatePlan plan = pool.state_plan(values_of(indices.value()), count);
  plan.states = states.value();
  return plan;
}

}  // namespace leapquant::api
