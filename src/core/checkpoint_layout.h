// SPDX-License-Identifier: Apache-2.0
//
// The only place that knows byte offsets and strides of a stored checkpoint.
#pragma once

#include <cstdint>

#include "core/geometry.h"

namespace leapquant {

// Offsets inside the region of one (slot, head), in bytes from its start:
//
//   codes [V, K] int8 | key_scale [K] fp32 | value_scale [V] fp32 | factors [R, K + V] fp16, row r = (u[r] | q[r])
struct RegionOffsets {
  int64_t key_scale;
  int64_t value_scale;
  int64_t factors;
  int64_t factor_row;  // bytes from one factor row to the next
  int64_t end;         // bytes of a region: 17,408 + 512 R at V = K = 128
};

constexpr RegionOffsets region_offsets(const Geometry& geometry) {
  const int64_t key_bytes = int64_t{geometry.key_dim} * 4;
  const int64_t value_bytes = int64_t{geometry.value_dim} * 4;
  const int64_t codes = int64_t{geometry.value_dim} * geometry.key_dim;
  const int64_t factor_row = (int64_t{geometry.key_dim} + geometry.value_dim) * 2;
  return {.key_scale = codes,
          .value_scale = codes + key_bytes,
          .factors = codes + key_bytes + value_bytes,
          .factor_row = factor_row,
          .end = codes + key_bytes + value_bytes + factor_row * geometry.rank};
}

enum class Layout : int32_t {
  kCompact = 1,
  kPadded = 2,
};

// Where regions lie in a pool's flat buffer: region(slot, head) = base_offset + slot * slot_stride + head *
// head_stride.
struct PoolLayout {
  int64_t base_offset;
  int64_t slot_stride;
  int64_t head_stride;
};

// The published layout gives each head the bytes of the fp32 state that it replaces, and each slot one spare head.
inline constexpr int64_t kPaddedHeadStride = 65536;
inline constexpr int64_t kPaddedBaseOffset = 49152;

constexpr PoolLayout pool_layout(const Geometry& geometry, Layout layout) {
  if (layout == Layout::kPadded) {
    return {kPaddedBaseOffset, kPaddedHeadStride * (int64_t{geometry.num_heads} + 1), kPaddedHeadStride};
  }
  const int64_t region = region_offsets(geometry).end;
  return {0, region * geometry.num_heads, region};
}

// Bytes of the window tensors of one program, the 4-byte counter included.
constexpr int64_t window_program_bytes(const Geometry& geometry) {
  const int64_t key_bytes = int64_t{geometry.window} * geometry.key_dim * 2;
  const int64_t update_bytes = int64_t{geometry.window} * geometry.value_dim * 2;
  const int64_t weight_bytes = int64_t{geometry.window} * 4;
  const int64_t decay_bytes =
      geometry.gate == Gate::kKda ? int64_t{geometry.window} * geometry.key_dim * 2 + int64_t{geometry.key_dim} * 4 : 4;
  return key_bytes + update_bytes + weight_bytes + decay_bytes + 4;
}

}  // namespace leapquant
