// SPDX-License-Identifier: Apache-2.0
#include "cuda/draft/arguments.h"

#include <cstddef>

#include "cuda/common/arguments.h"
#include "cuda/step/arguments.h"

namespace leapquant::cuda::draft {
namespace {

static_assert(kMostTokens == kMaxDraftTokens);
static_assert(sizeof(Header) == sizeof(DraftHeader));
static_assert(offsetof(Header, tokens) == offsetof(DraftHeader, tokens));
static_assert(offsetof(Header, entries) == offsetof(DraftHeader, entries));
static_assert(offsetof(Header, nonfinite) == offsetof(DraftHeader, nonfinite));
static_assert(offsetof(Header, stage) == offsetof(DraftHeader, stage));

Records records_of(const DraftView& draft) {
  const auto offset = [](int64_t bytes) { return static_cast<uint32_t>(bytes); };
  const DraftLayout& layout = draft.layout;
  return {
      .base = draft.base,
      .bytes = layout.end,
      .offset = {offset(layout.key), offset(layout.update), offset(layout.gate), offset(layout.log_gate),
                 offset(layout.log_decay), offset(layout.token_decay), offset(layout.weight), offset(layout.decay)}};
}

// A part of the records as a tensor of programs.
ProgramBytes part_of(const DraftView& draft, int64_t offset) {
  return {draft.base + offset, draft.layout.end * draft.num_heads, draft.layout.end};
}

}  // namespace

Result<DraftArguments> draft_arguments(const DraftPlan& plan) {
  const Result<step::StepArguments> step = step::arguments_of(plan.step);
  LQ_RETURN_IF_ERROR(step.status());
  DraftArguments arguments{
      .step = step.value(), .records = records_of(plan.draft), .tokens = static_cast<uint32_t>(plan.tokens)};
  const DraftLayout& layout = plan.draft.layout;
  const bool by_head = arguments.step.decay == Decay::kByHead;
  ProgramBytes* const tensor = arguments.step.tensor;
  tensor[step::kTargetKey] = part_of(plan.draft, layout.key);
  tensor[step::kTargetUpdate] = part_of(plan.draft, layout.update);
  tensor[step::kTargetWeight] = part_of(plan.draft, layout.weight);
  tensor[step::kTargetGate] = part_of(plan.draft, layout.gate);
  tensor[step::kTargetCheckpointDecay] = part_of(plan.draft, by_head ? layout.decay : layout.log_decay);
  return arguments;
}

Result<CommitArguments> commit_arguments(const CommitPlan& plan) {
  const FlushPlan& flush = plan.flush;
  LQ_RETURN_IF_ERROR(check_programs("commits", flush.programs()));
  CommitArguments arguments{.tensor = {},
                            .records = records_of(plan.draft),
                            .slot_index = flush.due.slot_index,
                            .accepted = plan.accepted,
                            .num_slots = flush.due.num_slots,
                            .errors = flush.due.errors,
                            .programs = static_cast<uint32_t>(flush.programs()),
                            .heads = static_cast<uint32_t>(flush.geometry.num_heads),
                            .tokens = plan.tokens,
                            .decay = decay_of(flush.geometry)};
  set_window(flush.window, arguments.decay, arguments.tensor);
  arguments.tensor[step::kFillCount] = in_bytes(flush.due.fill_count);
  return arguments;
}

}  // namespace leapquant::cuda::draft
