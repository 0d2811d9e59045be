// SPDX-License-Identifier: Apache-2.0
//
// The boundary: turns what a caller hands in into validated plans. Every shape, dtype, device, stride, alignment and
// overlap check of the library is here, and none is made again further in.
#pragma once

#include "api/tensor_check.h"
#include "core/tensor_view.h"
#include "leapquant/leapquant.h"
#include "plan/backend.h"
#include "pool/pool.h"

namespace leapquant::api {

Result<Geometry> to_geometry(const lq_geometry* geometry);
lq_tensor to_tensor(const TensorView& view);

// A functional flush on `backend`.
struct FlushRequest {
  const lq_geometry* geometry;
  const lq_checkpoint* checkpoint;
  const lq_window* window;
  const lq_tensor* start_basis;
  const lq_checkpoint* result;
  uint32_t flags;
};
Result<FlushPlan> plan_flush(const Backend& backend, const FlushRequest& request);

// The tensors of caller-owned pool memory.
Result<PoolStorage> to_storage(const Geometry& geometry, Layout layout, int64_t num_slots,
                               const lq_pool_tensors& tensors, Device device);

// Refuses memory that a tensor shares with a pool.
Status check_outside_pool(const Pool& pool, const Named& tensor);

// An index vector on the pool's device that overlaps nothing of the pool.
Result<TensorView> to_indices(const Pool& pool, const lq_tensor* idx, const char* name = "idx");
inline const int32_t* values_of(const TensorView& indices) { return static_cast<const int32_t*>(indices.data); }

// A flush of what an index vector names, a reset of it, and a copy from another's slots.
Result<FlushPlan> plan_flush_inplace(const Pool& pool, const lq_tensor* idx, const lq_tensor* start_basis);

Result<SlotPlan> plan_reset(const Pool& pool, const lq_tensor* idx);
Result<SlotPlan> plan_copy(const Pool& pool, const lq_tensor* sources, const lq_tensor* targets);

// An import of states, where `offset` may be null, and an export.
struct ImportRequest {
  const lq_tensor* idx;
  const lq_tensor* state;
  lq_state_order order;
  const lq_tensor* offset;
  const lq_tensor* start_basis;
};
Result<StatePlan> plan_import(const Pool& pool, const ImportRequest& request);
Result<StatePlan> plan_export(const Pool& pool, const lq_tensor* idx, const lq_tensor* state, lq_state_order order);

// A start basis on the pool's device that overlaps nothing of the pool.
Result<TensorView> to_start_basis(const Pool& pool, const lq_tensor* start_basis);

// A functional step on `backend`, and one of a pool's slots.
struct StepRequest {
  const lq_geometry* geometry;
  const lq_checkpoint* checkpoint;
  const lq_window* window;
  const lq_tensor* entries;
  const lq_token* token;
  const lq_step_params* params;
  const lq_step_result* result;
};
Result<StepPlan> plan_step(const Backend& backend, const StepRequest& request);
struct InplaceStepRequest {
  const lq_tensor* idx;
  const lq_token* token;
  const lq_step_params* params;
  const lq_tensor* output;
};
Result<StepPlan> plan_step_inplace(const Pool& pool, const InplaceStepRequest& request);

// Steps of `tokens` drafted tokens a sequence, and the commit of such a draft.
Result<int64_t> draft_bytes(const Geometry& geometry, int64_t count, int32_t tokens);
Result<DraftPlan> plan_draft(const Pool& pool, const InplaceStepRequest& request, int32_t tokens,
                             const lq_tensor* scratch);
struct CommitRequest {
  const lq_tensor* idx;
  int32_t tokens;
  const lq_tensor* scratch;
  const lq_tensor* accepted;
  const lq_tensor* start_basis;
};
Result<CommitPlan> plan_commit(const Pool& pool, const CommitRequest& request);

// A step and the flush that follows it, both validated before either runs: what is refused has changed nothing.
struct StepFlushPlans {
  StepPlan step;
  FlushPlan flush;
};
Result<StepFlushPlans> plan_step_flush_inplace(const Pool& pool, const InplaceStepRequest& request,
                                               const lq_tensor* start_basis);

// Refuses NaN and Inf in the inputs of a functional flush. Waits for the stream, and allocates.
Status check_finite(Backend& backend, const FlushPlan& plan, void* stream);

}  // namespace leapquant::api
