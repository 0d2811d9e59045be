// SPDX-License-Identifier: Apache-2.0
//
// T4 and T5: a thread's value channel, and what is written.
#pragma once

#include "cuda/step/dots.cuh"
#include "cuda/step/select.cuh"

namespace leapquant::cuda::step {

// S kn and S qn of a value channel.
__device__ __forceinline__ float2 state_products(const SharedStorage& smem, const Place& place, float scale,
                                                 float inverse_power, uint32_t live, uint32_t entries,
                                                 uint32_t rank) {
  const float2* const dot = smem.dot[place.warp];
  const float2 product = smem.product[place.thread];
  float2 sum = make_float2(product.x * inverse_power * scale, product.y * inverse_power * scale);
#pragma unroll 1
  for (uint32_t first = 0; first < rank; first += kGroup) {
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      if (first + i >= rank) continue;
      const float value = unpack_half(smem.value_factor[first + i][place.thread]).x;
      const float2 with = dot[kFirstFactorDot + first + i];
      sum = make_float2(fmaf(value, with.x, sum.x), fmaf(value, with.y, sum.y));
    }
  }
#pragma unroll 1
  for (uint32_t first = 0; first < entries; first += kGroup) {
#pragma unroll
    for (uint32_t i = 0; i < kGroup; ++i) {
      if ((live >> (first + i) & 1) == 0) continue;
      const float value =
          __uint_as_float(uint32_t{smem.window_update[entries - 1 - (first + i)][place.thread]} << 16);
      const float2 with = dot[first + i];
      sum = make_float2(fmaf(value, with.x, sum.x), fmaf(value, with.y, sum.y));
    }
  }
  return sum;
}

__device__ __forceinline__ uint16_t bfloat_bits(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// The new entry's rows: in place, row `entries` of the window's.
__device__ __forceinline__ void write_entry(const SharedStorage& smem, uint32_t thread, uint32_t row,
                                            const Sides& side, const Gate& gate, float update) {
  const uint32_t element = row * kDim + thread;
  tensor_of<uint16_t>(smem, kTargetKey)[element] = bfloat_bits(side.key);
  tensor_of<uint16_t>(smem, kTargetUpdate)[element] = bfloat_bits(update);
  tensor_of<uint16_t>(smem, kTargetGate)[element] = saturate_to_half(gate.decay);
  tensor_of<float>(smem, kTargetLogDecay)[thread] = gate.log_decay;
}

__device__ __forceinline__ void write_weight(const SharedStorage& smem, uint32_t thread, uint32_t entries,
                                             bool in_place) {
  float* const weight = tensor_of<float>(smem, kTargetWeight);
  if (!in_place) {
    if (thread < kEntries) weight[thread] = thread == entries ? 1.0f : smem.window_weight[thread];
  } else if (thread == 0) {
    weight[entries] = 1.0f;
    *tensor_of<int32_t>(smem, kFillCount) = static_cast<int32_t>(entries + 1);
  }
}

}  // namespace leapquant::cuda::step
