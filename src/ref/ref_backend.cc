// SPDX-License-Identifier: Apache-2.0
//
// The reference as a backend: the same calls, one program after another in float.
#include <algorithm>
#include <cmath>

#include "plan/host_backend.h"
#include "plan/host_draft.h"
#include "plan/host_state.h"
#include "plan/host_step.h"
#include "ref/dense.h"
#include "ref/flush.h"
#include "ref/grown_window.h"
#include "ref/step.h"

namespace leapquant::ref {
namespace {

class RefBackend final : public HostBackend {
 public:
  const BackendState& state() const override { return state_; }

  Status supports(const Geometry& geometry) const override {
    LQ_RETURN_IF_ERROR(check_geometry(geometry));
    return check_required_geometry(geometry, state_.name);
  }

  Status flush(const FlushPlan& plan, void* /*stream*/) override {
    for (int64_t n = 0; n < plan.programs(); ++n) {
      if (const auto due = due_program(plan, n)) flush_due(plan, *due);
    }
    return {};
  }

  Status draft(const DraftPlan& plan, void* /*stream*/) override {
    for (int64_t n = 0; n < plan.step.programs(); ++n) {
      if (const auto program = drafting_program(plan, n)) draft_live(plan, *program);
    }
    return {};
  }

  Status commit(const CommitPlan& plan, void* /*stream*/) override {
    for (int64_t n = 0; n < plan.flush.programs(); ++n) {
      commit_program(plan, n, [&](const DueProgram& due) { flush_due(plan.flush, due); });
    }
    return {};
  }

  Status import_state(const StatePlan& plan, void* /*stream*/) override {
    for (int64_t n = 0; n < plan.programs(); ++n) {
      const auto program = imported_program(plan, n);
      if (!program) continue;
      const std::vector<float> state = read_dense(plan.geometry, plan.states.at(program->position, program->head));
      const CheckpointProgram target = plan.checkpoint.at(program->item, program->head);
      finish_import(plan, *program, store_state(plan.geometry, state, plan.start_basis, target));
    }
    return {};
  }

  Status export_state(const StatePlan& plan, void* /*stream*/) override {
    for (int64_t n = 0; n < plan.programs(); ++n) {
      const auto program = exported_program(plan, n);
      if (!program) continue;
      const std::vector<float> state =
          rebuild_state<float>(plan.geometry, plan.checkpoint.at(program->item, program->head),
                               plan.window.at(program->item, program->head));
      write_dense(plan.geometry, state, plan.states.at(program->position, program->head));
    }
    return {};
  }

  Status step(const StepPlan& plan, void* /*stream*/) override {
    for (int64_t n = 0; n < plan.programs(); ++n) {
      if (const auto program = live_program(plan, n)) step_live(plan, *program);
    }
    return {};
  }

 private:
  static void step_live(const StepPlan& plan, const LiveProgram& program) {
    const StepValues<float> values = step_values<float>(
        plan.geometry, plan.gate, plan.checkpoint.at(program.item, program.head),
        plan.window.at(program.item, program.head), program.entries, plan.token.at(program.position, program.head));
    write_step(values, step_rows(plan, program));
    finish_step(plan, program, values.outcome());
  }

  // In a copy of the window, which grows by the tokens as they come.
  static void draft_live(const DraftPlan& plan, const LiveProgram& program) {
    const StepPlan& step = plan.step;
    GrownWindow window(step.geometry, step.window.at(program.item, program.head), program.entries, plan.tokens);
    for (int32_t t = 0; t < plan.tokens; ++t) {
      const StepValues<float> values =
          step_values<float>(step.geometry, step.gate, step.checkpoint.at(program.item, program.head), window.view(),
                             program.entries + t, step.token.at(program.position * plan.tokens + t, program.head));
      const StepRows rows = draft_rows(plan, program, t);
      write_step(values, rows);
      window.append(rows, values.outcome().token_decay);
      finish_draft(plan, program, t, values.outcome());
    }
  }

  static void flush_due(const FlushPlan& plan, const DueProgram& due) {
    const Geometry& geometry = plan.geometry;
    const WindowProgram window = plan.window.at(due.item, due.head);
    const std::vector<float> state = rebuild_state<float>(geometry, plan.source.at(due.item, due.head), window);
    finish_flush(plan, due, store_state(geometry, state, plan.start_basis, plan.target.at(due.item, due.head)));
  }

  // Steps 2 and 3. False when the state was not finite.
  static bool store_state(const Geometry& geometry, std::span<const float> state, const float* start_basis,
                          const CheckpointProgram& target) {
    const Factors factors = compress_state<float>(geometry, state, start_basis);
    quantize_residual<float>(geometry, state, factors, target);
    // A column scale is a sum over its column of the residual: NaN and Inf of the state or of the factors reach it.
    return std::all_of(target.key_scale, target.key_scale + geometry.key_dim,
                       [](float scale) { return std::isfinite(scale); });
  }

  BackendState state_{.name = "ref", .target = "scalar", .threads = 1, .device = {}};
};

Result<std::unique_ptr<Backend>> create(const BackendOptions& options) {
  if (options.device != 0) {
    return invalid_argument("context: backend 'ref' has device 0 only, got " + std::to_string(options.device));
  }
  if (options.threads < 0 || options.threads > 1) {
    return invalid_argument("context: backend 'ref' runs on 1 thread, got threads = " +
                            std::to_string(options.threads));
  }
  if (!options.target.empty() && options.target != "scalar") {
    return invalid_argument("context: backend 'ref' has target scalar only, got '" + options.target + "'");
  }
  return std::unique_ptr<Backend>(std::make_unique<RefBackend>());
}

}  // namespace

BackendEntry backend_entry() {
  return {.name = "ref",
          .device = DeviceType::kCpu,
          .description = "scalar reference: slow, written to be read",
          .supports = kRequiredGeometryText,
          .targets = [] { return "scalar"; },
          .create = create};
}

}  // namespace leapquant::ref
