// SPDX-License-Identifier: Apache-2.0
//
// Dense states, as a prefill makes them and as an export gives them. Grids of (item, head) as in core/program_view.h.
#pragma once

#include <cstdint>

#include "core/tensor_view.h"

namespace leapquant {

// Which way a state's elements run in memory.
enum class StateOrder : int32_t {
  kValueKey = 1,  // [V, K]
  kKeyValue = 2,  // [K, V]
};

// One program's state: V K elements without gaps.
struct DenseState {
  void* data;
  DType dtype;  // fp32 or bf16
  StateOrder order;
};

// States of [items, H] programs. Those that are imported are only read, although the pointer is not const.
struct DenseStateView {
  void* base = nullptr;
  DType dtype = DType::kFloat32;
  StateOrder order = StateOrder::kValueKey;
  int64_t item_stride = 0;  // in elements
  int64_t head_stride = 0;

  DenseState at(int64_t item, int64_t head) const {
    const int64_t offset = (item * item_stride + head * head_stride) * dtype_bytes(dtype);
    return {static_cast<char*>(base) + offset, dtype, order};
  }
};

}  // namespace leapquant
