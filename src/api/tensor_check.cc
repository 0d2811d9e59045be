// SPDX-License-Identifier: Apache-2.0
#include "api/tensor_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <string>

namespace leapquant::api {
namespace {

// Beyond any memory; keeps every later product of extents and strides inside 64 bits.
constexpr int64_t kLargestStride = int64_t{1} << 36;

// What a tensor must be. Its name in texts is prefix and name. Dimensions from `contiguous_from` on must be row-major
// without gaps.
struct Expected {
  const char* prefix;
  const char* name;
  DType dtype;
  std::span<const int64_t> shape;
  Device device;
  int contiguous_from;
};

std::string device_text(const lq_device& device) {
  return to_string(Device{static_cast<DeviceType>(device.type), device.index});
}

Status wrong(const Expected& expected, const std::string& came) {
  return invalid_argument(fmt::format("tensor '{}{}': expected {} {} on {}, got {}", expected.prefix, expected.name,
                                      dtype_name(expected.dtype), shape_text(expected.shape),
                                      to_string(expected.device), came));
}

Status check_strides(const Expected& expected, const TensorView& view) {
  for (int d = 0; d < view.ndim; ++d) {
    if (view.strides[d] > kLargestStride || view.strides[d] < -kLargestStride) {
      return wrong(expected, fmt::format("a stride of {} elements in dimension {}", view.strides[d], d));
    }
  }
  if (!view.contiguous_from(expected.contiguous_from)) {
    const std::span<const int64_t> strides(view.strides.data(), static_cast<size_t>(view.ndim));
    return wrong(expected, fmt::format("strides {}: dimensions from {} on must be contiguous", shape_text(strides),
                                       expected.contiguous_from));
  }
  return {};
}

// The one check of a tensor: everything but overlap.
Result<TensorView> to_view(const lq_tensor& tensor, const Expected& expected) {
  if (tensor.dtype == LQ_DTYPE_NONE && tensor.ndim == 0) return wrong(expected, "no tensor");
  if (tensor.ndim < 0 || tensor.ndim > LQ_MAX_DIMS) {
    return wrong(expected, fmt::format("{} dimensions", tensor.ndim));
  }
  TensorView view{.data = tensor.data,
                  .dtype = static_cast<DType>(tensor.dtype),
                  .device = {static_cast<DeviceType>(tensor.device.type), tensor.device.index},
                  .ndim = tensor.ndim};
  for (int d = 0; d < tensor.ndim; ++d) {
    view.shape[d] = tensor.shape[d];
    view.strides[d] = tensor.strides[d];
  }
  if (view.dtype != expected.dtype) return wrong(expected, fmt::format("dtype {}", dtype_name(view.dtype)));
  if (!std::equal(view.extents().begin(), view.extents().end(), expected.shape.begin(), expected.shape.end())) {
    return wrong(expected, "shape " + shape_text(view.extents()));
  }
  if (!(view.device == expected.device)) return wrong(expected, "device " + device_text(tensor.device));
  LQ_RETURN_IF_ERROR(check_strides(expected, view));
  if (view.elements() == 0) return view;
  if (view.data == nullptr) return wrong(expected, "a null data pointer");
  const auto address = reinterpret_cast<uintptr_t>(view.data);
  if (address % static_cast<uintptr_t>(dtype_bytes(view.dtype)) != 0) {
    return wrong(expected, fmt::format("an address that is not a multiple of {} bytes", dtype_bytes(view.dtype)));
  }
  return view;
}

bool overlap(const TensorView& a, const TensorView& b) {
  const auto base_a = reinterpret_cast<intptr_t>(a.data);
  const auto base_b = reinterpret_cast<intptr_t>(b.data);
  const TensorView::ByteRange range_a = a.byte_range();
  const TensorView::ByteRange range_b = b.byte_range();
  return range_a.begin != range_a.end && range_b.begin != range_b.end &&
         base_a + range_a.begin < base_b + range_b.end && base_b + range_b.begin < base_a + range_a.end;
}

bool is_absent(const lq_tensor& tensor) { return tensor.data == nullptr && tensor.dtype == LQ_DTYPE_NONE; }

}  // namespace

Status check_disjoint(const Named& written, const char* written_prefix, const Named& other, const char* other_prefix) {
  if (!overlap(written.view, other.view)) return {};
  return invalid_argument(fmt::format("tensor '{}{}': expected memory of its own, got an overlap with '{}{}'",
                                      written_prefix, written.name, other_prefix, other.name));
}

TensorView Checker::tensor(const char* name, const lq_tensor& tensor, DType dtype, std::span<const int64_t> shape,
                           int contiguous_from) {
  if (!status_.ok()) return {};
  const Result<TensorView> view = to_view(tensor, {prefix_, name, dtype, shape, device_, contiguous_from});
  if (!view.ok()) {
    status_ = view.status();
    return {};
  }
  assert(count_ < seen_.size());
  seen_[count_++] = {name, view.value()};
  return view.value();
}

TensorView Checker::numbers(const char* name, const lq_tensor& given, DType dtype, std::initializer_list<int64_t> shape,
                            int contiguous_from) {
  lq_tensor flat = given;
  const auto dims = static_cast<int32_t>(shape.size());
  if (given.ndim == dims + 1 && given.shape[dims] == 1) flat.ndim = dims;
  return tensor(name, flat, dtype, shape, contiguous_from);
}

void Checker::absent(const char* name, const lq_tensor& tensor, Gate gate) {
  if (!status_.ok() || is_absent(tensor)) return;
  absent(name, tensor, fmt::format("for gate {}", gate_name(gate)).c_str());
}

void Checker::absent(const char* name, const lq_tensor& tensor, const char* choice) {
  if (!status_.ok() || is_absent(tensor)) return;
  status_ =
      invalid_argument(fmt::format("tensor '{}{}': expected none {}, got one; leave it zero", prefix_, name, choice));
}

}  // namespace leapquant::api
