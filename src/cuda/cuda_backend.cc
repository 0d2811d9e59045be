// SPDX-License-Identifier: Apache-2.0
//
// The CUDA backend: one device, its memory, and launches on the caller's stream.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "cuda/common/check.h"
#include "cuda/flush/launch.h"
#include "plan/backend.h"

namespace leapquant::cuda {
namespace {

constexpr char kName[] = "cuda";
constexpr int kOldestArchitecture = 80;
constexpr int64_t kAlignment = 16;  // of every tensor and stride: the kernel copies 16 bytes at a time

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

template <class T>
ProgramBytes in_bytes(const Strided<T>& tensor) {
  constexpr int64_t kSize = sizeof(T);
  return {reinterpret_cast<char*>(tensor.base), tensor.item_stride * kSize, tensor.head_stride * kSize};
}

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

// Every program of a tensor must begin at a multiple of 16 bytes. Strides over a single program don't matter.
Status check_alignment(const FlushPlan& plan, const FlushArguments& arguments) {
  constexpr const char* kNames[kTensorCount] = {"codes",        "s_k",        "s_v",        "u",        "q",
                                                "kbuf",         "ubuf",       "w",          "gbuf",     "pcum",
                                                "result.codes", "result.s_k", "result.s_v", "result.u", "result.q"};
  int64_t rows[kTensorCount] = {};
  rows[kKeyFactor] = arguments.key_factor_row;
  rows[kValueFactor] = arguments.value_factor_row;
  rows[kTargetKeyFactor] = arguments.target_key_factor_row;
  rows[kTargetValueFactor] = arguments.target_value_factor_row;
  const int64_t items = plan.in_place ? plan.due.num_slots : plan.batch;
  for (int i = 0; i < kTensorCount; ++i) {
    if (i == kCheckpointDecay && arguments.decay == Decay::kByHead) continue;  // a number a program
    const ProgramBytes& tensor = arguments.tensor[i];
    int64_t misaligned = static_cast<int64_t>(reinterpret_cast<uintptr_t>(tensor.base) % kAlignment);
    if (items > 1) misaligned |= tensor.item_stride % kAlignment;
    if (plan.geometry.num_heads > 1) misaligned |= tensor.head_stride % kAlignment;
    if (plan.geometry.rank > 1) misaligned |= rows[i] % kAlignment;
    if (misaligned == 0) continue;
    return unsupported(std::string("backend 'cuda' needs every program of tensor '") + kNames[i] +
                       "' at a multiple of 16 bytes; copy it to aligned memory");
  }
  return {};
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
    if (plan.programs() > std::numeric_limits<int32_t>::max()) {
      return unsupported("backend 'cuda' flushes at most 2147483647 programs a call, got " +
                         std::to_string(plan.programs()));
    }
    const FlushArguments arguments = arguments_of(plan);
    LQ_RETURN_IF_ERROR(check_alignment(plan, arguments));
    const DeviceGuard guard(state_.device.index);
    LQ_RETURN_IF_ERROR(guard.status());
    return to_status(launch_flush(arguments, kernels_, as_stream(stream)), "flush");
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
