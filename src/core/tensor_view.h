// SPDX-License-Identifier: Apache-2.0
//
// TensorView: a pointer with its type, extents, strides and device. Owns nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace leapquant {

enum class DType : int32_t { kNone = 0, kInt8 = 1, kInt32 = 2, kFloat16 = 3, kBfloat16 = 4, kFloat32 = 5 };

const char* dtype_name(DType dtype);
int64_t dtype_bytes(DType dtype);  // 0 for kNone

enum class DeviceType : int32_t { kCpu = 1, kCuda = 2 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t index = 0;

  bool operator==(const Device&) const = default;
};

std::string to_string(const Device& device);  // "cpu", "cuda:1"

inline constexpr int kMaxDims = 5;

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kNone;
  Device device;
  int ndim = 0;
  std::array<int64_t, kMaxDims> shape{};
  std::array<int64_t, kMaxDims> strides{};  // in elements

  std::span<const int64_t> extents() const { return {shape.data(), static_cast<size_t>(ndim)}; }
  int64_t elements() const;
  // Bytes from the lowest to one past the highest element, and the offset of the lowest from `data`; {0, 0} when empty.
  struct ByteRange {
    int64_t begin;
    int64_t end;
  };
  ByteRange byte_range() const;
  // Whether dimensions [first, ndim) are laid out row-major without gaps. Extents of 1, and empty tensors, may have any
  // stride.
  bool contiguous_from(int first) const;
};

// A row-major view.
TensorView contiguous_view(void* data, DType dtype, Device device, std::span<const int64_t> shape);

// "[16, 32, 128]"
std::string shape_text(std::span<const int64_t> shape);

}  // namespace leapquant
