// SPDX-License-Identifier: Apache-2.0
//
// T4 and T5: a thread's value channel, and what is written.
#pragma once

#include "cuda/step/dots.cuh"
#include "cuda/step/select.cuh"

namespace leapquant::cuda::step {

// S kn and S qn of a lane's pair of value channels, as far as its half goes.
struct PairProducts {
  float2 key;
  float2 query;

  __device__ __forceinline__ void add(float2 value, float2 dot) {
    key = make_float2(fmaf(value.x, dot.x, key.x), fmaf(value.y, dot.x, key.y));
    query = make_float2(fmaf(value.x, dot.y, query.x), fmaf(value.y, dot.y, query.y));
  }
};

__device__ __forceinline__ float of_both_halves(float value) { return value + __shfl_xor_sync(kFullWarp, value, 16); }

// S kn and S qn of the thread's value channel; `scale` is its own.
template <Decay kDecay, int kRoom>
__device__ __forceinline__ float2 state_products(const WindowStorage<kRoom>& smem, const Place& place,
                                                 const Gate<kDecay>& gate, float scale, uint32_t live, uint32_t entries,
                                                 uint32_t rank) {
  const float2* const dot = smem.dot[place.warp];
  PairProducts sum = {};
#pragma unroll 1
  for (uint32_t pass = 0; pass < rank; pass += kPassFactors) {
#pragma unroll
    for (uint32_t i = 0; i < kOwnFactors; ++i) {
      const uint32_t factor = pass + kOwnFactors * place.half + i;
      const uint32_t values = place.pair_of(smem.value_factor[factor]);
      sum.add(unpack_half(factor < rank ? values : 0), dot[smem.kFirstFactorDot + factor]);
    }
  }
#pragma unroll 1
  for (uint32_t pass = 0; pass < entries; pass += kPassEntries) {
    const uint32_t first = pass + kOwnEntries * place.half;
    const char* const updates = place.pairs_from(smem.window_update, first, entries);
    const uint32_t own_live = live >> first;
#pragma unroll
    for (uint32_t i = 0; i < kOwnEntries; ++i) {
      const uint32_t seen = pair_behind(updates, i);
      sum.add(unpack_bfloat((own_live & 1u << i) != 0 ? seen : 0), dot[first + i]);
    }
  }
  const float2 key = make_float2(of_both_halves(sum.key.x), of_both_halves(sum.key.y));
  const float2 query = make_float2(of_both_halves(sum.query.x), of_both_halves(sum.query.y));
  const float key_product = smem.product[0][place.value_channel] * gate.of_checkpoint();
  const float query_product = smem.product[1][place.value_channel] * gate.of_checkpoint();
  return make_float2(fmaf(key_product, scale, place.half == 0 ? key.x : key.y),
                     fmaf(query_product, scale, place.half == 0 ? query.x : query.y));
}

__device__ __forceinline__ uint16_t bfloat_bits(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

// The new entry's rows: in place, row `row` of the window's.
__device__ __forceinline__ void write_key_row(const SharedStorage& smem, uint32_t thread, uint32_t row,
                                              const Sides& side) {
  tensor_of<uint16_t>(smem, kTargetKey)[row * kDim + thread] = bfloat_bits(side.key);
}
__device__ __forceinline__ void write_decays(const SharedStorage& smem, uint32_t thread, uint32_t row,
                                             const Gate<Decay::kByChannel>& gate) {
  tensor_of<uint16_t>(smem, kTargetGate)[row * kDim + thread] = saturate_to_half(gate.decay);
  tensor_of<float>(smem, kTargetCheckpointDecay)[thread] = gate.log_decay;
}
__device__ __forceinline__ void write_decays(const SharedStorage& smem, uint32_t thread, uint32_t /*row*/,
                                             const Gate<Decay::kByHead>& gate) {
  if (thread == 0) *tensor_of<float>(smem, kTargetCheckpointDecay) = gate.of_checkpoint();
}
__device__ __forceinline__ void write_value_rows(const SharedStorage& smem, uint32_t channel, uint32_t row,
                                                 float update, float output) {
  tensor_of<uint16_t>(smem, kTargetUpdate)[row * kDim + channel] = bfloat_bits(update);
  tensor_of<uint16_t>(smem, kOutput)[channel] = bfloat_bits(output);
}

// The weights that change, or all of them.
template <Decay kDecay>
__device__ __forceinline__ void write_weights(const WindowStorage<kEntries>& smem, uint32_t thread,
                                              const Gate<kDecay>& gate, uint32_t entries, bool all) {
  const bool changes = kDecay == Decay::kByHead ? thread <= entries : thread == entries;
  if (thread < kEntries && (changes || all)) {
    const float weight = smem.window_weight[0][thread];
    const float decayed = thread < entries ? weight * gate.of_window() : weight;
    tensor_of<float>(smem, kTargetWeight)[thread] = thread == entries ? 1.0f : decayed;
  }
}

}  // namespace leapquant::cuda::step
