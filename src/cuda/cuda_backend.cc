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
  constexpr int64_t kHalfBytes = sizeof(Half);
  const bool by_head = plan.geometry.gate == Gate::kGdn;
  return {{in_bytes(plan.source.codes), in_bytes(plan.source.key_scale), in_bytes(plan.source.value_scale),
           in_bytes(plan.source.key_factor), in_bytes(plan.source.value_factor), in_bytes(plan.window.window_key),
           in_bytes(plan.window.window_update), in_bytes(plan.window.window_weight), in_bytes(plan.window.window_gate),
           by_head ? in_bytes(plan.window.decay) : in_bytes(plan.window.log_decay), in_bytes(plan.target.codes),
           in_bytes(plan.target.key_scale), in_bytes(plan.target.value_scale), in_bytes(plan.target.key_factor),
           in_bytes(plan.target.value_factor)},
          plan.source.key_factor_row * kHalfBytes,
          plan.source.value_factor_row * kHalfBytes,
          plan.target.key_factor_row * kHalfBytes,
          plan.target.value_factor_row * kHalfBytes,
          plan.start_basis,
          plan.geometry.rank,
          by_head ? Decay::kByHead : Decay::kByChannel,
          kCodeExponents,
          {plan.in_place ? plan.due.slot_index : nullptr, in_bytes(plan.due.fill_count), plan.due.num_slots,
           plan.programs(), plan.geometry.num_heads, counter_unit(plan),
           plan.in_place ? plan.due.errors->first_position : nullptr}};
}

Status check_flush_alignment(const FlushPlan& plan, const FlushArguments& arguments) {
  constexpr const char* kNames[kTensorCount] = {"codes",        "s_k",        "s_v",        "u",        "q",
                                                "kbuf",         "ubuf",       "w",          "gbuf",     "pcum",
                                                "result.codes", "result.s_k", "result.s_v", "result.u", "result.q"};
  int64_t rows[kTensorCount] = {};
  if (plan.geometry.rank > 1) {
    rows[kKeyFactor] = arguments.key_factor_row;
    rows[kValueFactor] = arguments.value_factor_row;
    rows[kTargetKeyFactor] = arguments.target_key_factor_row;
    rows[kTargetValueFactor] = arguments.target_value_factor_row;
  }
  const ProgramCounts counts{plan.in_place ? plan.due.num_slots : plan.batch, plan.geometry.num_heads};
  for (int i = 0; i < kTensorCount; ++i) {
    if (i == kCheckpointDecay && arguments.decay == Decay::kByHead) continue;  // a number a program
    LQ_RETURN_IF_ERROR(check_alignment(kNames[i], arguments.tensor[i], counts, rows[i]));
  }
  return {};
}

// What a flush launches, once it is known that it can.
Result<FlushArguments> checked_arguments(const FlushPlan& plan) {
  LQ_RETURN_IF_ERROR(check_programs("flushes", plan.programs()));
  const FlushArguments arguments = arguments_of(plan);
  LQ_RETURN_IF_ERROR(check_flush_alignment(plan, arguments));
  return arguments;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, const FlushKernels& kernels, std::string target)
      : kernels_(kernels),
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
    return on_device("flush", [&] { return launch_flush(arguments.value(), kernels_, as_stream(stream)); });
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
      if (error == cudaSuccess) error = launch_flush(arguments.value(), kernels_, as_stream(stream));
      return error == cudaSuccess ? revise(slots::CounterRule::kEmpty) : error;
    });
  }

  Status step(const StepPlan& plan, void* stream) override {
    const Result<step::StepArguments> arguments = step::arguments_of(plan);
    LQ_RETURN_IF_ERROR(arguments.status());
    return on_device("step", [&] { return step::launch_step(arguments.value(), as_stream(stream)); });
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
      if (error == cudaSuccess) error = launch_flush(flush.value(), kernels_, as_stream(stream));
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

  FlushKernels kernels_;
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
  FlushKernels kernels;
  LQ_RETURN_IF_CUDA_ERROR(prepare_flush(&kernels), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(step::prepare_step(), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(draft::prepare_drafts(), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(slots::prepare_slots(), "loading the kernels");
  LQ_RETURN_IF_CUDA_ERROR(state::prepare_states(), "loading the kernels");
  return std::unique_ptr<Backend>(new CudaBackend(options.device, kernels, target));
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
