// SPDX-License-Identifier: Apache-2.0
//
// T3 over the key channels: dot products of window entries and old factors with both sides.
#pragma once

#include "cuda/step/prepare.cuh"

namespace leapquant::cuda::step {

inline constexpr int kGroup = 4;  // entries or factors whose sums are taken together

// Writes the warp's part of the dot products first ... first + 3. `value` is (x, y) of each in turn.
__device__ __forceinline__ void write_dots(SharedStorage& smem, const Place& place, uint32_t first,
                                           float (&value)[kSides * kGroup]) {
  const float sum = reduce_values(value, place.lane);
  if (place.t == 0) reinterpret_cast<float*>(&smem.dot_part[place.warp][first])[place.g] = sum;
}

__device__ __forceinline__ void add_factors(SharedStorage& smem, const Place& place, const Sides& side,
                                            float state_decay, uint32_t rank) {
  const float key = state_decay * side.key;
  const float query = state_decay * side.query;
#pragma unroll 1
  for (uint32_t first = 0; first < rank; first += kGroup) {
    float value[kSides * kGroup];
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      const float factor =
          first + i < rank ? unpack_half(smem.key_factor[first + i][place.thread]).x : 0.0f;
      value[kSides * i] = factor * key;
      value[kSides * i + 1] = factor * query;
    }
    write_dots(smem, place, kFirstFactorDot + first, value);
  }
}

// From the newest entry to the oldest, the decay of each a product of the gates after it. An entry of weight 0 is not
// looked at, its gate aside.
__device__ __forceinline__ void add_entries(SharedStorage& smem, const Place& place, const Sides& side, float decay,
                                            uint32_t entries) {
#pragma unroll 1
  for (uint32_t first = 0; first < entries; first += kGroup) {
    float value[kSides * kGroup];
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      float key = 0.0f;
      if (first + i < entries) {
        const uint32_t entry = entries - 1 - (first + i);
        if (smem.window_weight[entry] != 0.0f) {
          key = __uint_as_float(uint32_t{smem.window_key[entry][place.thread]} << 16) * decay;
        }
        decay *= unpack_half(smem.window_gate[entry][place.thread]).x;
      }
      value[kSides * i] = key * side.key;
      value[kSides * i + 1] = key * side.query;
    }
    write_dots(smem, place, first, value);
  }
}

__device__ __forceinline__ void add_key_query(SharedStorage& smem, const Place& place, const Sides& side) {
  float value[1] = {side.key * side.query};
  const float sum = reduce_values(value, place.lane);
  if (place.lane == 0) smem.dot_part[place.warp][kKeyQueryDot] = make_float2(sum, 0.0f);
}

// Adds the warps' parts up, each warp for itself; entries count by their weights. Returns which entries are live, the
// newest in bit 0.
__device__ __forceinline__ uint32_t finish_dots(SharedStorage& smem, const Place& place, uint32_t entries,
                                                uint32_t rank) {
  const uint32_t n = place.lane;
  const bool is_entry = n < entries;
  const float weight = is_entry ? smem.window_weight[entries - 1 - n] : 1.0f;
  if (is_entry || (n >= kFirstFactorDot && n < kFirstFactorDot + rank) || n == kKeyQueryDot) {
    float2 sum = smem.dot_part[0][n];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      const float2 part = smem.dot_part[warp][n];
      sum = make_float2(sum.x + part.x, sum.y + part.y);
    }
    smem.dot[place.warp][n] = make_float2(weight * sum.x, weight * sum.y);
  }
  return __ballot_sync(kFullWarp, is_entry && weight != 0.0f);
}

}  // namespace leapquant::cuda::step
