// SPDX-License-Identifier: Apache-2.0
//
// The boundary of speculative decoding.
#include <fmt/format.h>

#include <string>

#include "api/step_check.h"
#include "api/validate.h"

namespace leapquant::api {
namespace {

Status check_tokens(int32_t tokens) {
  if (tokens >= 1 && tokens <= kMaxDraftTokens) return {};
  return invalid_argument(fmt::format("tokens: expected 1 to {}, got {}", kMaxDraftTokens, tokens));
}

// The scratch for the drafts of `count` sequences.
Result<TensorView> to_scratch(const Pool& pool, const lq_tensor* scratch, int64_t count, int32_t tokens) {
  const int64_t wanted = draft_layout(pool.geometry(), tokens).end * pool.geometry().num_heads * count;
  if (scratch == nullptr || scratch->ndim != 1 || scratch->shape[0] < wanted) {
    return invalid_argument(fmt::format("tensor 'scratch': expected int8 of at least [{}], got {}", wanted,
                                        scratch == nullptr   ? std::string("NULL")
                                        : scratch->ndim == 1 ? fmt::format("[{}]", scratch->shape[0])
                                                             : fmt::format("{} dimensions", scratch->ndim)));
  }
  Checker checker(pool.backend().state().device);
  const TensorView view = checker.tensor("scratch", *scratch, DType::kInt8, {scratch->shape[0]}, 0);
  LQ_RETURN_IF_ERROR(checker.status());
  if (reinterpret_cast<uintptr_t>(view.data) % kDraftAlignment != 0) {
    return invalid_argument(
        fmt::format("tensor 'scratch': expected an address that is a multiple of {} bytes", kDraftAlignment));
  }
  LQ_RETURN_IF_ERROR(check_outside_pool(pool, {"scratch", view}));
  return view;
}

DraftView view_drafts(const Pool& pool, const TensorView& scratch, int32_t tokens) {
  return {.base = static_cast<char*>(scratch.data),
          .layout = draft_layout(pool.geometry(), tokens),
          .num_heads = pool.geometry().num_heads};
}

// Only host memory can be looked at: a device's own kernel reports what it meets.
Status check_accepted(const CommitPlan& plan, const Device& device) {
  if (device.type != DeviceType::kCpu) return {};
  for (int64_t i = 0; i < plan.flush.batch; ++i) {
    if (plan.accepted[i] >= 0 && plan.accepted[i] <= plan.tokens) continue;
    return invalid_argument(fmt::format("tensor 'accepted': expected 0 to {} tokens, got {} at batch {}", plan.tokens,
                                        plan.accepted[i], i));
  }
  return {};
}

}  // namespace

Result<int64_t> draft_bytes(const Geometry& geometry, int64_t count, int32_t tokens) {
  LQ_RETURN_IF_ERROR(check_tokens(tokens));
  const int64_t per_sequence = draft_layout(geometry, tokens).end * geometry.num_heads;
  int64_t bytes = 0;
  if (count < 0 || __builtin_mul_overflow(count, per_sequence, &bytes)) {
    return invalid_argument(fmt::format("n: expected a number of sequences, got {}", count));
  }
  return bytes;
}

Result<DraftPlan> plan_draft(const Pool& pool, const InplaceStepRequest& request, int32_t tokens,
                             const lq_tensor* scratch) {
  LQ_RETURN_IF_ERROR(check_tokens(tokens));
  const Result<TensorView> indices = to_indices(pool, request.idx);
  if (!indices.ok()) return indices.status();
  const Result<TensorView> memory = to_scratch(pool, scratch, indices.value().shape[0], tokens);
  if (!memory.ok()) return memory.status();
  const Named written{"scratch", memory.value()};
  const Result<StepPlan> step = plan_slot_steps(pool, request, tokens, &written);
  if (!step.ok()) return step.status();
  return DraftPlan{.step = step.value(), .tokens = tokens, .draft = view_drafts(pool, memory.value(), tokens)};
}

Result<CommitPlan> plan_commit(const Pool& pool, const CommitRequest& request) {
  LQ_RETURN_IF_ERROR(check_tokens(request.tokens));
  const Result<FlushPlan> flush = plan_flush_inplace(pool, request.idx, request.start_basis);
  if (!flush.ok()) return flush.status();
  const Result<TensorView> memory = to_scratch(pool, request.scratch, flush.value().batch, request.tokens);
  if (!memory.ok()) return memory.status();
  const Result<TensorView> accepted = to_indices(pool, request.accepted, "accepted");
  if (!accepted.ok()) return accepted.status();
  if (accepted.value().shape[0] != flush.value().batch) {
    return invalid_argument(fmt::format("tensor 'accepted': expected as many entries as 'idx' has, {}, got {}",
                                        flush.value().batch, accepted.value().shape[0]));
  }
  const CommitPlan plan{.flush = flush.value(),
                        .tokens = request.tokens,
                        .draft = view_drafts(pool, memory.value(), request.tokens),
                        .accepted = static_cast<const int32_t*>(accepted.value().data)};
  LQ_RETURN_IF_ERROR(check_accepted(plan, pool.backend().state().device));
  return plan;
}

}  // namespace leapquant::api
