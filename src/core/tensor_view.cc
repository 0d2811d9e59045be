// SPDX-License-Identifier: Apache-2.0
#include "core/tensor_view.h"

#include <algorithm>
#include <cassert>

namespace leapquant {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kNone:
      return "none";
    case DType::kInt8:
      return "int8";
    case DType::kInt32:
      return "int32";
    case DType::kFloat16:
      return "float16";
    case DType::kBfloat16:
      return "bfloat16";
    case DType::kFloat32:
      return "float32";
  }
  return "unknown";
}

int64_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
      return 1;
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kNone:
      break;
  }
  return 0;
}

std::string to_string(const Device& device) {
  if (device.type == DeviceType::kCpu) return "cpu";
  return "cuda:" + std::to_string(device.index);
}

int64_t TensorView::elements() const {
  int64_t count = 1;
  for (const int64_t extent : extents()) count *= extent;
  return count;
}

TensorView::ByteRange TensorView::byte_range() const {
  if (elements() == 0) return {0, 0};
  int64_t lowest = 0;
  int64_t highest = 0;
  for (int d = 0; d < ndim; ++d) {
    const int64_t reach = (shape[d] - 1) * strides[d];
    (reach < 0 ? lowest : highest) += reach;
  }
  const int64_t bytes = dtype_bytes(dtype);
  return {lowest * bytes, (highest + 1) * bytes};
}

bool TensorView::contiguous_from(int first) const {
  if (elements() == 0) return true;
  int64_t expected = 1;
  for (int d = ndim - 1; d >= first; --d) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

TensorView contiguous_view(void* data, DType dtype, Device device, std::span<const int64_t> shape) {
  assert(shape.size() <= static_cast<size_t>(kMaxDims));
  TensorView view{.data = data, .dtype = dtype, .device = device, .ndim = static_cast<int>(shape.size())};
  std::copy(shape.begin(), shape.end(), view.shape.begin());
  int64_t stride = 1;
  for (int d = view.ndim - 1; d >= 0; --d) {
    view.strides[d] = stride;
    stride *= shape[d];
  }
  return view;
}

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t d = 0; d < shape.size(); ++d) text += (d == 0 ? "" : ", ") + std::to_string(shape[d]);
  return text + "]";
}

}  // namespace leapquant
