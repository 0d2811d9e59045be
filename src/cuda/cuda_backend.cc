// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend: one device, its memory, and launches on the caller's stream.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cuda/common/arguments.h"
#include "cuda/common/check.h"
#include "cuda/draft/arguments.h"
#include "cuda/draft/launch.h"
#include "cuda/flush/launch.h"
#include "cuda/slots/arguments.h"
#include "cuda/slots/launch.h"
#include "cuda/state/arguments.h"
#include "cuda/state/launch.h"
#include "cuda/step/arguments.h"
#include "cuda/step/launch.h"
#include "plan/backend.h"

namespace leapquant::cuda {
namespace {

constexpr char kName[] = "cuda";
constexpr int kOldestArchitecture = 80;

// "sm_90", or nothing when device 0 is missing or too old.
const char* target_names() {
  static const std::string names = [] {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
      (void)cudaGetLastError();
      return std::string();
    }
    const int architecture = 10 * properties.major + properties.minor;
    return architecture < kOldestArchitecture ? std::string() : "sm_" + std::to_string(architecture);
  }();
  return names.c_str();
}

cudaStream_t as_stream(void* stream) { return static_cast<cudaStream_t>(stream); }

// Counters can be read several at once when they are dense, at a multiple of 16 bytes.
int32_t counter_unit(const FlushPlan& plan) {
  constexpr uintptr_t kReadBytes = 16;
  const auto& counters = plan.due.fill_count;
  const int32_t heads = plan.geometry.num_heads;
  const bool dense = counters.head_stride == 1 && counters.item_stride == heads &&
                     reinterpret_cast<uintptr_t>(counters.base) % kReadBytes == 0;
  if (!dense) return 1;
  return heads % 8 == 0 ? 8 : heads % 4 == 0 ? 4 : 1;
}

FlushArguments arguments_of(const FlushPlan& plan) {
  const FactorRows source_rows = factor_rows(plan.source);
  const FactorRows target_rows = factor_rows(plan.target);
  FlushArguments arguments{
      .tensor = {},
      .key_factor_row = source_rows.key,
      .value_factor_row = source_rows.value,
      .target_key_factor_row = target_rows.key,
      .target_value_factor_row = target_rows.value,
      .start_basis = plan.start_basis,
      .rank = plan.geometry.rank,
      .decay = decay_of(plan.geometry),
      .code_exponents = kCodeExponents,
      .selection = {.slot_index = plan.in_place ? plan.due.slot_index : nullptr,
                    .fill_count = in_bytes(plan.due.fill_count),
                    .num_slots = plan.due.num_slots,
                    .programs = plan.programs(),
                    .heads = plan.geometry.num_heads,
                    .unit = counter_unit(plan),
                    .first_error_position = plan.in_place ? plan.due.errors->first_position : nullptr}};
  set_checkpoint(plan.source, arguments.tensor);
  set_window(plan.window, arguments.decay, arguments.tensor);
  set_checkpoint(plan.target, arguments.tensor + kTargetCodes);
  return arguments;
}

// What a flush launches, once it is known that it can.
Result<FlushArguments> checked_arguments(const FlushPlan& plan) {
  LQ_RETURN_IF_ERROR(check_programs("flushes", plan.programs()));
  const ProgramCounts counts{plan.in_place ? plan.due.num_slots : plan.batch, plan.geometry.num_heads};
  LQ_RETURN_IF_ERROR(check_checkpoint("", plan.source, counts, plan.geometry.rank));
  LQ_RETURN_IF_ERROR(check_window(plan.window, counts));
  LQ_RETURN_IF_ERROR(check_checkpoint("result.", plan.target, counts, plan.geometry.rank));
  return arguments_of(plan);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, const FlushKernels& flush_kernels, const step::StepKernels& step_kernels, std::string target)
      : flush_kernels_(flush_kernels),
        step_kernels_(step_kernels),
        state_{.name = kName,
               .target = std::move(target),
               .threads = 1,
               .device = {.type = DeviceType::kCuda, .index = device}} {}

  const BackendState& state() const override { return state_; }

  Status supports(const Geometry& geometry) const override {
    LQ_RETURN_IF_ERROR(check_geometry(geometry));
    return check_required_geometry(geometry, kName);
  }

  Status flush(const FlushPlan& plan, void* stream) override {
    const Result<FlushArguments> arguments = checked_arguments(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("flush", [&] { return launch_flush(arguments.value(), flush_kernels_, as_stream(stream)); });
  }

  // Counters are revised around a flush of those that are due: the flush itself writes none, since its blocks read
  // them all.
  Status flush_now(const FlushPlan& plan, void* stream) override {
    const Result<FlushArguments> arguments = checked_arguments(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    const slots::CounterArguments counters = slots::counters_of(plan);
    const auto revise = [&](slots::CounterRule rule) {
      return slots::launch_counters(rule, counters, as_stream(stream));
    };
    return on_device("flush of any fill", [&] {
      cudaError_t error = revise(slots::CounterRule::kDropFlushed);
      if (error == cudaSuccess) error = revise(slots::CounterRule::kMarkDue);
      if (error == cudaSuccess) error = launch_flush(arguments.value(), flush_kernels_, as_stream(stream));
      return error == cudaSuccess ? revise(slots::CounterRule::kEmpty) : error;
    });
  }

  Status step(const StepPlan& plan, void* stream) override {
    const Result<step::StepArguments> arguments = step::arguments_of(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("step", [&] { return step::launch_step(arguments.value(), step_kernels_, as_stream(stream)); });
  }

  Status draft(const DraftPlan& plan, void* stream) override {
    const Result<draft::DraftArguments> arguments = draft::draft_arguments(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("draft", [&] { return draft::launch_draft(arguments.value(), as_stream(stream)); });
  }

  Status commit(const CommitPlan& plan, void* stream) override {
    const Result<FlushArguments> flush = checked_arguments(plan.flush);
    LQ_RETURN_IF_ERROR(flush.status());
    const Result<draft::CommitArguments> commit = draft::commit_arguments(plan);
    LQ_RETURN_IF_ERROR(commit.status());
    return on_device("commit of drafts", [&] {
      cudaError_t error = draft::launch_fill(commit.value(), as_stream(stream));
      if (error == cudaSuccess) error = launch_flush(flush.value(), flush_kernels_, as_stream(stream));
      return error == cudaSuccess ? draft::launch_rest(commit.value(), as_stream(stream)) : error;
    });
  }

  Status import_state(const StatePlan& plan, void* stream) override {
    const Result<state::ImportArguments> arguments = state::import_arguments(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("import of states", [&] { return state::launch_import(arguments.value(), as_stream(stream)); });
  }

  Status export_state(const StatePlan& plan, void* stream) override {
    const Result<state::StateArguments> arguments = state::export_arguments(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("export of states", [&] { return state::launch_export(arguments.value(), as_stream(stream)); });
  }

  Status reset_slots(const SlotPlan& plan, void* stream) override {
    const Result<slots::SlotArguments> arguments = slots::arguments_of(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("reset of slots", [&] { return slots::launch_reset(arguments.value(), as_stream(stream)); });
  }

  Status copy_slots(const SlotPlan& plan, void* stream) override {
    const Result<slots::SlotArguments> arguments = slots::arguments_of(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("copy of slots", [&] { return slots::launch_copy(arguments.value(), as_stream(stream)); });
  }

  Result<void*> allocate(size_t bytes) override {
    const DeviceGuard guard(state_.device.index);
    LQ_RETURN_IF_ERROR(guard.status());
    void* memory = nullptr;
    LQ_RETURN_IF_CUDA_ERROR(cudaMalloc(&memory, bytes), "allocating device memory");
    const Status zeroed = finished(cudaMemset(memory, 0, bytes), "clearing device memory");
    if (zeroed.ok()) return memory;
    (void)cudaFree(memory);
    return zeroed;
  }

  void release(void* memory, size_t /*bytes*/) override {
    const DeviceGuard guard(state_.device.index);
    (void)cudaFree(memory);
  }

  Status fill16(void* memory, uint16_t pattern, size_t count) override {
    return fill(memory, uint32_t{pattern} << 16 | pattern, 2 * count);
  }

  Status fill32(void* memory, uint32_t pattern, size_t count) override { return fill(memory, pattern, 4 * count); }

  Status copy_to_host(void* host, const void* device, size_t bytes, void* stream) override {
    return copy(host, device, bytes, cudaMemcpyDeviceToHost, stream);
  }

  Status copy_from_host(void* device, const void* host, size_t bytes, void* stream) override {
    return copy(device, host, bytes, cudaMemcpyHostToDevice, stream);
  }

 private:
  // Launches with the backend's device current.
  template <class Launch>
  Status on_device(const char* what, const Launch& launch) const {
    const DeviceGuard guard(state_.device.index);
    LQ_RETURN_IF_ERROR(guard.status());
    return to_status(launch(), what);
  }

  // Work on the default stream that later work on any stream may rely on.
  static Status finished(cudaError_t error, const char* what) {
    LQ_RETURN_IF_CUDA_ERROR(error, what);
    return to_status(cudaStreamSynchronize(nullptr), what);
  }

  // By doubling: the first word comes from the host, and then the filled part is copied behind itself.
  Status fill(void* memory, uint32_t pattern, size_t bytes) {
    if (bytes == 0) return {};
    const DeviceGuard guard(state_.device.index);
    LQ_RETURN_IF_ERROR(guard.status());
    if (pattern == 0) return finished(cudaMemset(memory, 0, bytes), "filling device memory");
    auto* const first = static_cast<char*>(memory);
    size_t filled = std::min(bytes, sizeof(pattern));
    LQ_RETURN_IF_CUDA_ERROR(cudaMemcpy(first, &pattern, filled, cudaMemcpyHostToDevice), "filling device memory");
    while (filled < bytes) {
      const size_t next = std::min(filled, bytes - filled);
      LQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(first + filled, first, next, cudaMemcpyDeviceToDevice, nullptr),
                              "filling device memory");
      filled += next;
    }
    return finished(cudaSuccess, "filling device memory");
  }

  Status copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, void* stream) {
    if (bytes == 0) return {};
    const DeviceGuard guard(state_.device.index);
    LQ_RETURN_IF_ERROR(guard.status());
    LQ_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, bytes, kind, as_stream(stream)), "copying");
    return to_status(cudaStreamSynchronize(as_stream(stream)), "copying");
  }

  FlushKernels flush_kernels_;
  step::StepKernels step_kernels_;
  BackendState state_;
};

Result<std::unique_ptr<Backend>> create(const BackendOptions& options) {
  int count = 0;
  LQ_RETURN_IF_CUDA_ERROR(cudaGetDeviceCount(&count), "looking for a device");
  if (options.device < 0 || options.device >= count) {
    return invalid_argument("context: device: expected 0 to " + std::to_string(count - 1) + ", got " +
                            std::to_string(options.device));
  }
  cudaDeviceProp properties{};
  LQ_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, options.device), "describing the device");
  const int architecture = 10 * properties.major + properties.minor;
  const std::string target = "sm_" + std::to_string(architecture);
  if (architecture < kOldestArchitecture) {
    return unsupported("backend 'cuda' supports devices from sm_" + std::to_string(kOldestArchitecture) +
                       " on, device " + std::to_string(options.device) + " is " + target);
  }
  if (!options.target.empty() && options.target != target) {
    return invalid_argument("context: target: device " + std::to_string(options.device) + " has '" + target +
                            "', got '" + options.target + "'");
  }
  const DeviceGuard guard(options.device);
  LQ_RETURN_IF_ERROR(guard.status());
  FlushKernels flush_kernels;
  step::StepKernels step_kernels;
  LQ_RETURN_IF_CUDA_ERROR(prepare_flush(&flush_kernels), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(step::prepare_step(&step_kernels), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(draft::prepare_drafts(), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(slots::prepare_slots(), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(state::prepare_states(), "loading the kernels");
  return std::unique_ptr<Backend>(new CudaBackend(options.device, flush_kernels, step_kernels, target));
}

}  // namespace

BackendEntry backend_entry() {
  return {.name = kName,
          .device = DeviceType::kCuda,
          .description = "NVIDIA GPUs from sm_80 on; tensors and pools in device memory, stream a cudaStream_t",
          .supports = kRequiredGeometryText,
          .targets = &target_names,
          .create = &create};
}

}  // namespace leapquant::cuda
