// SPDX-License-Identifier: Apache-2.0
//
// The reference as a backend: the same calls, one program after another in float.
#include <algorithm>
#include <cmath>

#include "plan/host_backend.h"
#include "plan/host_step.h"
#include "ref/flush.h"
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
    finish_step(plan, program, values.finite());
  }

  static void flush_due(const FlushPlan& plan, const DueProgram& due) {
    const Geometry& geometry = plan.geometry;
    const WindowProgram window = plan.window.at(due.item, due.head);
    const std::vector<float> state = rebuild_state<float>(geometry, plan.source.at(due.item, due.head), window);
    const Factors factors = compress_state<float>(geometry, state, plan.start_basis);
    const CheckpointProgram target = plan.target.at(due.item, due.head);
    quantize_residual<float>(geometry, state, factors, target);
    // A column scale is a sum over its column of the residual: NaN and Inf of the state or of the factors reach it.
    const bool finite = std::all_of(target.key_scale, target.key_scale + geometry.key_dim,
                                    [](float scale) { return std::isfinite(scale); });
    finish_flush(plan, due, finite);
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
