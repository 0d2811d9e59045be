// SPDX-License-Identifier: Apache-2.0
#include "pool/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

namespace leapquant {
namespace {

constexpr int64_t kSectionAlignment = 256;

int64_t aligned(int64_t bytes) { return (bytes + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment; }

int64_t bytes_of(const TensorView& tensor) { return tensor.elements() * dtype_bytes(tensor.dtype); }

TensorView shaped(DType dtype, Device device, std::initializer_list<int64_t> shape) {
  return contiguous_view(nullptr, dtype, device, {shape.begin(), shape.size()});
}

// A tensor of a region: `offset` bytes into it, extents inside a region appended to [N, H].
TensorView region_view(const TensorView& raw, const PoolLayout& layout, int64_t num_slots, int64_t num_heads,
                       int64_t offset, DType dtype, std::initializer_list<int64_t> inner) {
  std::array<int64_t, kMaxDims> shape = {num_slots, num_heads};
  std::copy(inner.begin(), inner.end(), shape.begin() + 2);
  void* data = static_cast<char*>(raw.data) + layout.base_offset + offset;
  TensorView view = contiguous_view(data, dtype, raw.device, {shape.data(), 2 + inner.size()});
  view.strides[0] = layout.slot_stride / dtype_bytes(dtype);
  view.strides[1] = layout.head_stride / dtype_bytes(dtype);
  return view;
}

template <class T>
Strided<T> strided(const TensorView& tensor) {
  return {static_cast<T*>(tensor.data), tensor.strides[0], tensor.strides[1]};
}

}  // namespace

Result<PoolSizes> pool_sizes(const Geometry& geometry, Layout layout, int64_t num_slots) {
  LQ_RETURN_IF_ERROR(check_geometry(geometry));
  if (layout != Layout::kCompact && layout != Layout::kPadded) {
    return invalid_argument(
        fmt::format("pool: layout must be 1 (compact) or 2 (padded), got {}", static_cast<int32_t>(layout)));
  }
  if (layout == Layout::kPadded && region_offsets(geometry).end > kPaddedHeadStride) {
    return unsupported(fmt::format("pool: the padded layout has {} bytes a head, this geometry needs {}",
                                   kPaddedHeadStride, region_offsets(geometry).end));
  }
  if (num_slots < 1) return invalid_argument(fmt::format("pool: num_slots must be at least 1, got {}", num_slots));
  const PoolLayout strides = pool_layout(geometry, layout);
  PoolSizes sizes{.raw_bytes = 0,
                  .window_bytes = 0,
                  .checkpoint_bytes_per_slot = strides.slot_stride,
                  .window_bytes_per_slot = window_program_bytes(geometry) * geometry.num_heads,
                  .fp32_bytes_per_slot = geometry.fp32_state_bytes() * geometry.num_heads};
  if (__builtin_mul_overflow(num_slots, strides.slot_stride, &sizes.raw_bytes) ||
      __builtin_add_overflow(sizes.raw_bytes, strides.base_offset, &sizes.raw_bytes) ||
      __builtin_mul_overflow(num_slots, sizes.window_bytes_per_slot, &sizes.window_bytes)) {
    return out_of_memory(fmt::format("pool: {} slots need more than 2^63 bytes", num_slots));
  }
  return sizes;
}

int64_t slots_in(const Geometry& geometry, Layout layout, int64_t bytes) {
  const PoolLayout strides = pool_layout(geometry, layout);
  const int64_t per_slot = strides.slot_stride + window_program_bytes(geometry) * geometry.num_heads;
  return bytes <= strides.base_offset ? 0 : (bytes - strides.base_offset) / per_slot;
}

PoolStorage storage_shapes(const Geometry& geometry, const PoolSizes& sizes, int64_t num_slots, Device device) {
  const int64_t n = num_slots;
  const int64_t h = geometry.num_heads;
  const int64_t l = geometry.window;
  PoolStorage storage{.raw = shaped(DType::kFloat32, device, {sizes.raw_bytes / 4}),
                      .window_key = shaped(DType::kBfloat16, device, {n, h, l, geometry.key_dim}),
                      .window_update = shaped(DType::kBfloat16, device, {n, h, l, geometry.value_dim}),
                      .window_weight = shaped(DType::kFloat32, device, {n, h, l}),
                      .window_gate = {},
                      .log_decay = {},
                      .decay = {},
                      .fill_count = shaped(DType::kInt32, device, {n, h})};
  if (geometry.gate == Gate::kKda) {
    storage.window_gate = shaped(DType::kFloat16, device, {n, h, l, geometry.key_dim});
    storage.log_decay = shaped(DType::kFloat32, device, {n, h, geometry.key_dim});
  } else {
    storage.decay = shaped(DType::kFloat32, device, {n, h});
  }
  return storage;
}

Pool::Pool(std::shared_ptr<Backend> backend, const Options& options)
    : backend_(std::move(backend)),
      geometry_(options.geometry),
      layout_(pool_layout(options.geometry, options.layout)),
      num_slots_(options.num_slots) {
  if (options.storage != nullptr) storage_ = *options.storage;
}

Pool::~Pool() {
  if (memory_ != nullptr) backend_->release(memory_, memory_bytes_);
}

Result<std::unique_ptr<Pool>> Pool::create(std::shared_ptr<Backend> backend, const Options& options) {
  LQ_RETURN_IF_ERROR(backend->supports(options.geometry));
  const Result<PoolSizes> sizes = pool_sizes(options.geometry, options.layout, options.num_slots);
  if (!sizes.ok()) return sizes.status();
  std::unique_ptr<Pool> pool(new Pool(std::move(backend), options));
  LQ_RETURN_IF_ERROR(pool->allocate(sizes.value(), options.storage == nullptr));
  if (!options.keep_contents) LQ_RETURN_IF_ERROR(pool->initialize());
  return pool;
}

Status Pool::allocate(const PoolSizes& sizes, bool own_storage) {
  int64_t bytes = aligned(sizeof(ErrorWord));
  if (own_storage) {
    storage_ = storage_shapes(geometry_, sizes, num_slots_, backend_->state().device);
    for_each_tensor(storage_, [&](const char*, const TensorView& tensor) { bytes += aligned(bytes_of(tensor)); });
  }
  const Result<void*> memory = backend_->allocate(static_cast<size_t>(bytes));
  if (!memory.ok()) return {memory.status().code(), "pool: " + memory.status().message()};
  memory_ = memory.value();
  memory_bytes_ = static_cast<size_t>(bytes);
  errors_ = static_cast<ErrorWord*>(memory_);
  if (own_storage) {
    char* section = static_cast<char*>(memory_) + aligned(sizeof(ErrorWord));
    for_each_tensor(storage_, [&](const char*, TensorView& tensor) {
      if (tensor.dtype == DType::kNone) return;
      tensor.data = section;
      section += aligned(bytes_of(tensor));
    });
  }
  const ErrorWord none;
  return backend_->copy_from_host(errors_, &none, sizeof(none), nullptr);
}

// A fresh slot is a valid zero state. Memory of the library is zero already.
Status Pool::initialize() {
  const bool zeroed = memory_bytes_ > static_cast<size_t>(aligned(sizeof(ErrorWord)));
  Status status;
  const auto fill = [&](const TensorView& tensor, uint32_t pattern) {
    if (!status.ok() || tensor.dtype == DType::kNone || (zeroed && pattern == 0)) return;
    const auto bytes = static_cast<size_t>(bytes_of(tensor));
    status = dtype_bytes(tensor.dtype) == 2 ? backend_->fill16(tensor.data, static_cast<uint16_t>(pattern), bytes / 2)
                                            : backend_->fill32(tensor.data, pattern, bytes / 4);
  };
  for_each_tensor(storage_, [&](const char*, const TensorView& tensor) {
    const bool gate = &tensor == &storage_.window_gate;
    const bool decay = &tensor == &storage_.decay;
    fill(tensor, gate ? kHalfOne : decay ? 0x3F800000u : 0u);
  });
  return status;
}

CheckpointTensors Pool::checkpoints() const {
  const RegionOffsets offsets = region_offsets(geometry_);
  const auto view = [&](int64_t offset, DType dtype, std::initializer_list<int64_t> inner) {
    return region_view(storage_.raw, layout_, num_slots_, geometry_.num_heads, offset, dtype, inner);
  };
  return {.codes = view(0, DType::kInt8, {geometry_.value_dim, geometry_.key_dim}),
          .key_scale = view(offsets.key_scale, DType::kFloat32, {geometry_.key_dim}),
          .value_scale = view(offsets.value_scale, DType::kFloat32, {geometry_.value_dim}),
          .factors = view(offsets.factors, DType::kFloat16, {geometry_.rank, geometry_.key_dim + geometry_.value_dim})};
}

CheckpointView Pool::checkpoint_view() const {
  const CheckpointTensors tensors = checkpoints();
  const Strided<Half> key_factor = strided<Half>(tensors.factors);
  CheckpointView checkpoint{.codes = strided<int8_t>(tensors.codes),
                            .key_scale = strided<float>(tensors.key_scale),
                            .value_scale = strided<float>(tensors.value_scale),
                            .key_factor = key_factor,
                            .value_factor = key_factor,
                            .key_factor_row = tensors.factors.strides[2],
                            .value_factor_row = tensors.factors.strides[2]};
  checkpoint.value_factor.base += geometry_.key_dim;
  return checkpoint;
}

WindowView Pool::window_view() const {
  return {.window_key = strided<Bfloat16>(storage_.window_key),
          .window_update = strided<Bfloat16>(storage_.window_update),
          .window_weight = strided<float>(storage_.window_weight),
          .window_gate = strided<Half>(storage_.window_gate),
          .log_decay = strided<float>(storage_.log_decay),
          .decay = strided<float>(storage_.decay)};
}

PoolSelection Pool::selection(const int32_t* indices) const {
  return {.slot_index = indices,
          .fill_count = strided<int32_t>(storage_.fill_count),
          .num_slots = num_slots_,
          .errors = errors_};
}

FlushPlan Pool::flush_plan(const int32_t* indices, int64_t count, const float* start_basis) const {
  const CheckpointView checkpoint = checkpoint_view();
  return {.geometry = geometry_,
          .batch = count,
          .source = checkpoint,
          .target = checkpoint,
          .window = window_view(),
          .start_basis = start_basis,
          .in_place = true,
          .due = selection(indices)};
}

StepPlan Pool::step_plan(const int32_t* indices, int64_t count) const {
  return {.geometry = geometry_,
          .batch = count,
          .checkpoint = checkpoint_view(),
          .window = window_view(),
          .token = {},
          .gate = {},
          .target = {},
          .entries = {},
          .in_place = true,
          .pool = selection(indices)};
}

SlotPlan Pool::slot_plan(const int32_t* indices, int64_t count, const int32_t* sources) const {
  return {.geometry = geometry_,
          .count = count,
          .checkpoint = checkpoint_view(),
          .window = window_view(),
          .pool = selection(indices),
          .source_index = sources};
}

StatePlan Pool::state_plan(const int32_t* indices, int64_t count) const {
  return {.geometry = geometry_,
          .batch = count,
          .states = {},
          .checkpoint = checkpoint_view(),
          .window = window_view(),
          .pool = selection(indices),
          .start_basis = nullptr,
          .first_entry = {}};
}

Status Pool::check_indices(const int32_t* indices, int64_t count, void* stream) const {
  std::vector<int32_t> slots(static_cast<size_t>(count));
  LQ_RETURN_IF_ERROR(backend_->copy_to_host(slots.data(), indices, slots.size() * sizeof(int32_t), stream));
  std::vector<int64_t> positions(slots.size());
  std::iota(positions.begin(), positions.end(), 0);
  std::stable_sort(positions.begin(), positions.end(), [&](int64_t a, int64_t b) { return slots[a] < slots[b]; });
  // The pair whose second position comes first in the batch.
  int64_t first = count;
  int64_t second = count;
  for (size_t i = 1; i < positions.size(); ++i) {
    if (slots[positions[i]] <= 0 || slots[positions[i]] != slots[positions[i - 1]]) continue;
    if (positions[i] < second) std::tie(first, second) = std::pair(positions[i - 1], positions[i]);
  }
  if (second == count) return {};
  return invalid_argument(
      fmt::format("idx: slot {} stands at positions {} and {}", slots[static_cast<size_t>(first)], first, second));
}

Result<ErrorWord> Pool::read_errors(void* stream) const {
  ErrorWord word;
  LQ_RETURN_IF_ERROR(backend_->copy_to_host(&word, errors_, sizeof(word), stream));
  const ErrorWord none;
  LQ_RETURN_IF_ERROR(backend_->copy_from_host(errors_, &none, sizeof(none), stream));
  return word;
}

}  // namespace leapquant
