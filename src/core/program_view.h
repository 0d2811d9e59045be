// SPDX-License-Identifier: Apache-2.0
//
// Views of checkpoints and windows as (item, head) grids of programs. One description serves the functional form (item
// = batch index, separate factor tensors) and the pool (item = slot, factors interleaved in one row). All strides are
// in elements and 64-bit.
#pragma once

#include <cstdint>

#include "core/numerics.h"

namespace leapquant {

template <class T>
struct Strided {
  T* base = nullptr;
  int64_t item_stride = 0;
  int64_t head_stride = 0;

  T* at(int64_t item, int64_t head) const { return base + item * item_stride + head * head_stride; }
};

// One program's checkpoint.
struct CheckpointProgram {
  int8_t* codes;       // [V, K]
  float* key_scale;    // [K]
  float* value_scale;  // [V]
  Half* key_factor;    // [R, K], rows key_factor_row apart
  Half* value_factor;  // [R, V], rows value_factor_row apart
  int64_t key_factor_row;
  int64_t value_factor_row;
};

// One program's window.
struct WindowProgram {
  Bfloat16* window_key;     // [L, K]
  Bfloat16* window_update;  // [L, V]
  float* window_weight;     // [L]
  Half* window_gate;        // [L, K], KDA
  float* log_decay;         // [K], KDA
  float* decay;             // [1], GDN
};

// Checkpoints of [items, H] programs. Sources are only read, although the pointers are not const: in place, source and
// target are the same view.
struct CheckpointView {
  Strided<int8_t> codes;
  Strided<float> key_scale;
  Strided<float> value_scale;
  Strided<Half> key_factor;
  Strided<Half> value_factor;
  int64_t key_factor_row = 0;
  int64_t value_factor_row = 0;

  CheckpointProgram at(int64_t item, int64_t head) const {
    return {codes.at(item, head),      key_scale.at(item, head),    value_scale.at(item, head),
            key_factor.at(item, head), value_factor.at(item, head), key_factor_row,
            value_factor_row};
  }
};

// Windows of [items, H] programs. The members of the other gate have a null base.
struct WindowView {
  Strided<Bfloat16> window_key;
  Strided<Bfloat16> window_update;
  Strided<float> window_weight;
  Strided<Half> window_gate;
  Strided<float> log_decay;
  Strided<float> decay;

  WindowProgram at(int64_t item, int64_t head) const {
    return {window_key.at(item, head),
            window_update.at(item, head),
            window_weight.at(item, head),
            window_gate.base == nullptr ? nullptr : window_gate.at(item, head),
            log_decay.base == nullptr ? nullptr : log_decay.at(item, head),
            decay.base == nullptr ? nullptr : decay.at(item, head)};
  }
};

}  // namespace leapquant
