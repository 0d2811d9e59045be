// SPDX-License-Identifier: Apache-2.0
//
// The CPU backend: chooses an instruction set, shares the programs of a plan out over its workers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "core/checkpoint_layout.h"
#include "cpu/cpu_quota.h"
#include "cpu/flush_kernel.h"
#include "cpu/state_kernel.h"
#include "cpu/step_kernel.h"
#include "cpu/step_range.h"
#include "cpu/targets.h"
#include "cpu/worker_pool.h"
#include "plan/host_backend.h"
#include "plan/host_draft.h"
#include "plan/host_state.h"

namespace leapquant::cpu {
namespace {

constexpr char kName[] = "cpu";
constexpr int32_t kMostThreads = 1024;
constexpr char kTargetVariable[] = "LQ_CPU_TARGET";

const char* target_names() {
  static const std::string names = [] {
    std::string list;
    for (const Target& target : usable_targets()) list += (list.empty() ? "" : ",") + target.name;
    return list;
  }();
  return names.c_str();
}

int64_t number_of(const FlushPlan& plan, const DueProgram& due) {
  return due.position * plan.geometry.num_heads + due.head;
}

// The first due program in [n, end).
std::optional<DueProgram> next_due(const FlushPlan& plan, int64_t n, int64_t end) {
  for (; n < end; ++n) {
    if (const auto due = due_program(plan, n)) return due;
  }
  return std::nullopt;
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(Target target, int threads)
      : target_(std::move(target)),
        workers_(threads),
        workspaces_(static_cast<size_t>(threads)),
        step_workspaces_(static_cast<size_t>(threads)),
        state_{.name = kName, .target = target_.name, .threads = threads, .device = {}} {}

  const BackendState& state() const override { return state_; }

  Status supports(const Geometry& geometry) const override {
    LQ_RETURN_IF_ERROR(check_geometry(geometry));
    return check_required_geometry(geometry, kName);
  }

  Status flush(const FlushPlan& plan, void* /*stream*/) override {
    // Nobody is woken for a call with nothing due.
    const std::optional<DueProgram> first_due = next_due(plan, 0, plan.programs());
    if (!first_due) return {};
    const int64_t first = number_of(plan, *first_due);
    const int64_t count = plan.programs() - first;
    const FlushKernel kernel = flush_kernel_of(target_, plan.geometry.rank);
    workers_.run(count, [&](int worker, int64_t begin, int64_t end) {
      flush_range(plan, kernel, first + begin, first + end, workspaces_[static_cast<size_t>(worker)]);
    });
    return {};
  }

  Status step(const StepPlan& plan, void* /*stream*/) override {
    const StepKernel kernel = step_kernel_of(target_, plan.geometry.gate);
    workers_.run(plan.programs(), [&](int worker, int64_t begin, int64_t end) {
      step_range(plan, kernel, begin, end, step_workspaces_[static_cast<size_t>(worker)]);
    });
    return {};
  }

  Status draft(const DraftPlan& plan, void* /*stream*/) override {
    const StepKernel kernel = step_kernel_of(target_, plan.step.geometry.gate);
    workers_.run(plan.step.programs(), [&](int worker, int64_t begin, int64_t end) {
      draft_range(plan, kernel, begin, end, step_workspaces_[static_cast<size_t>(worker)]);
    });
    return {};
  }

  Status commit(const CommitPlan& plan, void* /*stream*/) override {
    const FlushKernel kernel = flush_kernel_of(target_, plan.flush.geometry.rank);
    workers_.run(plan.flush.programs(), [&](int worker, int64_t begin, int64_t end) {
      FlushWorkspace& workspace = workspaces_[static_cast<size_t>(worker)];
      workspace.upcoming.clear();
      kernel.prepare_start(plan.flush.start_basis, workspace);
      for (int64_t n = begin; n < end; ++n) {
        commit_program(plan, n, [&](const DueProgram& due) { flush_due(plan.flush, kernel, due, workspace); });
      }
    });
    return {};
  }

  Status import_state(const StatePlan& plan, void* /*stream*/) override {
    const int32_t rank = plan.geometry.rank;
    const auto prepare_start = flush_kernel_of(target_, rank).prepare_start;
    const StateKernel kernel = state_kernel_of(target_, rank);
    workers_.run(plan.programs(), [&](int worker, int64_t begin, int64_t end) {
      FlushWorkspace& workspace = workspaces_[static_cast<size_t>(worker)];
      workspace.upcoming.clear();
      prepare_start(plan.start_basis, workspace);
      for (int64_t n = begin; n < end; ++n) {
        const auto program = imported_program(plan, n);
        if (!program) continue;
        const bool finite = kernel.import_state(plan.states.at(program->position, program->head),
                                                plan.checkpoint.at(program->item, program->head), workspace);
        finish_import(plan, *program, finite);
      }
    });
    return {};
  }

  Status export_state(const StatePlan& plan, void* /*stream*/) override {
    const StateKernel kernel = state_kernel_of(target_, plan.geometry.rank);
    workers_.run(plan.programs(), [&](int worker, int64_t begin, int64_t end) {
      FlushWorkspace& workspace = workspaces_[static_cast<size_t>(worker)];
      workspace.upcoming.clear();
      for (int64_t n = begin; n < end; ++n) {
        const auto program = exported_program(plan, n);
        if (!program) continue;
        kernel.export_state(plan.geometry.gate, plan.checkpoint.at(program->item, program->head),
                            plan.window.at(program->item, program->head),
                            plan.states.at(program->position, program->head), workspace);
      }
    });
    return {};
  }

 private:
  // Lines of a program that are worth fetching ahead: the codes, in a pool with scales and factors behind them, and the
  // window rows.
  static void queue_program(const FlushPlan& plan, const DueProgram& program, PrefetchQueue& queue) {
    const WindowProgram window = plan.window.at(program.item, program.head);
    const int64_t bytes = plan.in_place ? region_offsets(plan.geometry).end : plan.geometry.state_elements();
    queue.add(plan.source.codes.at(program.item, program.head), static_cast<size_t>(bytes));
    if (plan.geometry.gate == Gate::kKda) queue.add(window.window_gate, kWindow * kKeyDim * sizeof(Half));
    queue.add(window.window_update, kWindow * kValueDim * sizeof(Bfloat16));
    queue.add(window.window_key, kWindow * kKeyDim * sizeof(Bfloat16));
  }

  static void flush_range(const FlushPlan& plan, const FlushKernel& kernel, int64_t begin, int64_t end,
                          FlushWorkspace& workspace) {
    std::optional<DueProgram> due = next_due(plan, begin, end);
    if (due) kernel.prepare_start(plan.start_basis, workspace);
    for (std::optional<DueProgram> next; due; due = next) {
      next = next_due(plan, number_of(plan, *due) + 1, end);
      workspace.upcoming.clear();
      if (next) queue_program(plan, *next, workspace.upcoming);
      flush_due(plan, kernel, *due, workspace);
    }
  }

  static void flush_due(const FlushPlan& plan, const FlushKernel& kernel, const DueProgram& due,
                        FlushWorkspace& workspace) {
    const bool finite = kernel.flush(plan.geometry.gate, plan.source.at(due.item, due.head),
                                     plan.window.at(due.item, due.head), plan.target.at(due.item, due.head), workspace);
    finish_flush(plan, due, finite);
  }

  Target target_;
  WorkerPool workers_;
  std::vector<FlushWorkspace> workspaces_;      // one a worker
  std::vector<StepWorkspace> step_workspaces_;  // one a worker
  BackendState state_;
};

// The target that the options or the environment ask for, or the best one.
Result<Target> choose_target(const BackendOptions& options) {
  const char* variable = std::getenv(kTargetVariable);
  const std::string wanted = !options.target.empty() ? options.target : variable != nullptr ? variable : "";
  for (const Target& target : usable_targets()) {
    if (wanted.empty() || wanted == target.name) return target;
  }
  return invalid_argument(fmt::format("context: target '{}' ({}) is not one of this build and machine: {}", wanted,
                                      options.target.empty() ? kTargetVariable : "option", target_names()));
}

Result<std::unique_ptr<Backend>> create(const BackendOptions& options) {
  if (options.device != 0) {
    return invalid_argument(fmt::format("context: backend 'cpu' has device 0 only, got {}", options.device));
  }
  if (options.threads < 0 || options.threads > kMostThreads) {
    return invalid_argument(
        fmt::format("context: threads must be between 0 and {}, got {}", kMostThreads, options.threads));
  }
  const Result<Target> target = choose_target(options);
  if (!target.ok()) return target.status();
  const int threads = options.threads != 0 ? options.threads : std::min(available_threads(), kMostThreads);
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(target.value(), threads));
}

}  // namespace

BackendEntry backend_entry() {
  return {.name = kName,
          .device = DeviceType::kCpu,
          .description = "vectorised, multi-threaded; instruction set chosen at run time",
          .supports = kRequiredGeometryText,
          .targets = target_names,
          .create = create};
}

}  // namespace leapquant::cpu
