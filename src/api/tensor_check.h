// SPDX-License-Identifier: Apache-2.0
//
// The checks of single tensors of the interface: dtype, shape, device, strides, alignment; and of pairs: overlap.
//
// Calls promise to allocate nothing: on the way of a valid call nothing here does. Texts are made once one is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "core/geometry.h"
#include "core/status.h"
#include "core/tensor_view.h"
#include "leapquant/leapquant.h"

namespace leapquant::api {

// A validated tensor with the name it has in messages.
struct Named {
  const char* name;
  TensorView view;
};

// Refuses memory that two tensors share. A prefix stands before a name in the text.
Status check_disjoint(const Named& written, const char* written_prefix, const Named& other, const char* other_prefix);

// Collects tensors of one call: the first failure sticks, and later ones are not looked at.
class Checker {
 public:
  // `prefix` stands before every name in texts.
  Checker(Device device, const char* prefix = "") : device_(device), prefix_(prefix) {}

  // The view of a tensor that must have this dtype and shape and lie on the call's device. Its dimensions from
  // `contiguous_from` on must be row-major without gaps.
  TensorView tensor(const char* name, const lq_tensor& tensor, DType dtype, std::span<const int64_t> shape,
                    int contiguous_from);
  TensorView tensor(const char* name, const lq_tensor& given, DType dtype, std::initializer_list<int64_t> shape,
                    int contiguous_from) {
    return tensor(name, given, dtype, std::span(shape.begin(), shape.size()), contiguous_from);
  }

  // A tensor of numbers, one for each place of `shape`. It may have one more dimension, of 1.
  TensorView numbers(const char* name, const lq_tensor& given, DType dtype, std::initializer_list<int64_t> shape,
                     int contiguous_from);

  // A tensor of the other gate, which must not be there.
  void absent(const char* name, const lq_tensor& tensor, Gate gate);
  // One that a choice of the caller, put into words, leaves no use for.
  void absent(const char* name, const lq_tensor& tensor, const char* choice);

  const Status& status() const { return status_; }
  std::span<const Named> seen() const { return {seen_.data(), count_}; }

 private:
  static constexpr size_t kMostTensors = 20;  // of one call: checkpoint 5, window 5, h, token 7

  Device device_;
  const char* prefix_;
  Status status_;
  std::array<Named, kMostTensors> seen_{};
  size_t count_ = 0;
};

}  // namespace leapquant::api
