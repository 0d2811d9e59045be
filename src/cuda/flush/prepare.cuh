// SPDX-License-Identifier: Apache-2.0
//
// Step 1 as operands: the codes as fragments, and both sides of the rank-20 part.
#pragma once

#include "cuda/flush/load.cuh"

namespace leapquant::cuda {

// Byte offset of a pair of places (2 pair, 2 pair + 1) in a row of the key side.
template <int kColumns>
__device__ __forceinline__ uint32_t key_side_offset(uint32_t row, uint32_t pair) {
  return static_cast<uint32_t>(pair / 32 * Layout<kColumns>::kKeyHalfBytes + row * 128 +
                               ((pair % 32 / 4 ^ (row & 7)) << 4) + pair % 4 * 4);
}

// Where a lane works while the key side is made: a pair of places, and half of the entries and factors. The places'
// keys are two of four neighbours, the even or the odd ones.
struct KeyPair {
  uint32_t pair;  // of places
  uint32_t half;
  uint32_t quad;  // of keys
  bool odd;

  __device__ __forceinline__ explicit KeyPair(const Place& place)
      : pair(16 * place.warp + place.lane % 16),
        half(place.lane / 16),
        quad(pair / 8 * 4 + pair % 4),
        odd((pair & 4) != 0) {}
  // The pair's two of four halves.
  __device__ __forceinline__ uint32_t select(uint2 four) const {
    return __byte_perm(four.x, four.y, odd ? 0x7632 : 0x5410);
  }
  // ... and of four floats.
  __device__ __forceinline__ float2 select(const float* keys) const {
    const float* const first = keys + 4 * quad + (odd ? 1 : 0);
    return make_float2(first[0], first[2]);
  }
};

// What the lane's entries have decayed by since they were appended: the product of the gates after each, by
// multiplication alone.
template <int kOwnEntries>
__device__ __forceinline__ void decay_entries(const KeyPair& own, const uint32_t (&gate)[kOwnEntries],
                                              float2 (&decay)[kOwnEntries]) {
  float2 product[2] = {make_float2(1.0f, 1.0f), make_float2(1.0f, 1.0f)};
#pragma unroll
  for (int i = 0; i < kOwnEntries; ++i) {
    const float2 value = unpack_half(gate[i]);
    product[i % 2] = make_float2(product[i % 2].x * value.x, product[i % 2].y * value.y);
  }
  const float later_x = __shfl_down_sync(kFullWarp, product[0].x * product[1].x, 16);
  const float later_y = __shfl_down_sync(kFullWarp, product[0].y * product[1].y, 16);
  float2 later = own.half == 0 ? make_float2(later_x, later_y) : make_float2(1.0f, 1.0f);
#pragma unroll
  for (int i = kOwnEntries - 1; i >= 0; --i) {
    decay[i] = later;
    const float2 factor = unpack_half(gate[i]);
    later = make_float2(later.x * factor.x, later.y * factor.y);
  }
}

// Window entries: see kKeyTerms.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void prepare_window_keys(SharedStorage<kColumns>& smem, const KeyPair& own) {
  constexpr int kOwnEntries = kEntries / 2;
  const uint32_t keys = shared_address(smem.staged[0]);
  const uint32_t gates = shared_address(smem.staged[1]);
  const uint32_t first = staged_window_offset(kOwnEntries * own.half, own.quad / 2) + own.quad % 2 * 8;
  uint32_t gate[kOwnEntries];
  uint32_t key[kOwnEntries];
  float weight[kOwnEntries];
#pragma unroll
  for (int i = 0; i < kOwnEntries; ++i) {
    if constexpr (kDecay == Decay::kByChannel) gate[i] = own.select(load_shared8(gates + first + i * 2 * kDim));
    key[i] = own.select(load_shared8(keys + first + i * 2 * kDim));
  }
#pragma unroll
  for (int i = 0; i < kOwnEntries; i += 4) {
    const float4 part = *reinterpret_cast<const float4*>(&smem.window_weight[kOwnEntries * own.half + i]);
    weight[i] = part.x;
    weight[i + 1] = part.y;
    weight[i + 2] = part.z;
    weight[i + 3] = part.w;
  }
  float2 decay[kOwnEntries];
  if constexpr (kDecay == Decay::kByChannel) decay_entries(own, gate, decay);
  // Entries of weight 0 contribute nothing, whatever their rows hold: most windows have none.
  if (__any_sync(kFullWarp, smem.window_weight[own.pair % kEntries] == 0.0f)) {
#pragma unroll
    for (int i = 0; i < kOwnEntries; ++i) {
      if (weight[i] != 0.0f) continue;
      key[i] = 0;
      decay[i] = make_float2(0.0f, 0.0f);
    }
  }
  const uint32_t target =
      shared_address(smem.key_side) + key_side_offset<kColumns>(row_of_entry(kOwnEntries * own.half), own.pair);
#pragma unroll
  for (int i = kOwnEntries - 1; i >= 0; --i) {
    // Row i or i + 4 of its group of eight, whose chunks are exchanged accordingly.
    uint32_t place = (target ^ (i % 4) << 4) + row_of_entry(i) * 128;
    const auto store = [&](uint32_t term) {
      store_shared(place, term);
      place += Layout<kColumns>::kBlockBytes;
    };
    if constexpr (kDecay == Decay::kByChannel) {
      float2 value = unpack_bfloat(key[i]);
      value = make_float2(weight[i] * value.x, weight[i] * value.y);
      value = make_float2(value.x * decay[i].x, value.y * decay[i].y);
      const BfloatPair terms = split_pair(value.x, value.y);
      store(terms.hi);
      store(terms.mid);
      store(terms.lo);
    } else {
      const float2 value = unpack_bfloat(key[i]);
      const BfloatPair terms = split_pair(weight[i] * value.x, weight[i] * value.y);
      store(key[i]);
      store(terms.hi);
      store(terms.mid);
    }
  }
}

// What the checkpoint has decayed by at the pair of keys.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ float2 checkpoint_decay(const SharedStorage<kColumns>& smem, const KeyPair& own) {
  if constexpr (kDecay == Decay::kByHead) return make_float2(smem.decay[0], smem.decay[0]);
  const float2 logarithm = own.select(smem.decay);
  return make_float2(expf(logarithm.x), expf(logarithm.y));
}

// Column scales c = s_k D / 127, and old key factors u D.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void prepare_key_factors(SharedStorage<kColumns>& smem, const KeyPair& own) {
  const float2 decay = checkpoint_decay<kDecay>(smem, own);
  float2 scale = own.select(smem.key_scale);
  scale = make_float2(divide_by_127(scale.x) * decay.x, divide_by_127(scale.y) * decay.y);
  if (own.half == 0) {
    float* const target = &smem.code_scale[4 * own.quad + (own.odd ? 1 : 0)];
    target[0] = scale.x;
    target[2] = scale.y;
  }
  const uint32_t largest = __reduce_max_sync(kFullWarp, __float_as_uint(fmaxf(fabsf(scale.x), fabsf(scale.y))));
  if (threadIdx.x % 32 == 0) smem.largest_scale[threadIdx.x / 32] = __uint_as_float(largest);
  constexpr int kOwnFactors = kColumns / 2;
  const uint32_t first_row = 16 * kKeyTerms + (kColumns == 4 ? kOwnFactors : 16) * own.half;
  const uint32_t target = shared_address(smem.key_side) + key_side_offset<kColumns>(first_row, own.pair);
#pragma unroll
  for (int i = 0; i < kOwnFactors; ++i) {
    const uint32_t factor = kOwnFactors * own.half + i;
    const float2 value = unpack_half(own.select(reinterpret_cast<const uint2*>(smem.key_factor[factor])[own.quad]));
    const BfloatPair terms = split_pair(value.x * decay.x, value.y * decay.y);
    const uint32_t term[4] = {terms.hi, terms.mid, terms.lo, terms.hi};
#pragma unroll
    for (int j = 0; j < 4; ++j) store_shared((target ^ (i ^ j % 2 * 4) << 4) + (i + 4 * j) * 128, term[j]);
  }
}

// Old value factors as hi, hi, hi, lo, which is exact (11 bits); updates of weight 0 become zero.
template <int kColumns>
__device__ __forceinline__ void prepare_values(SharedStorage<kColumns>& smem, const Place& place) {
  const uint32_t side = shared_address(smem.value_side);
  const uint32_t pair = place.thread % 64;
  const uint32_t first = place.thread / 64;
  const uint32_t target = side + value_side_offset<kColumns>(kEntries + first, pair / 4) + pair % 4 * 4;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const uint32_t factor = first + 2 * i;
    const float2 value = unpack_half(reinterpret_cast<const uint32_t*>(smem.value_factor[factor])[pair]);
    const uint32_t hi = pack_bfloat(value.x, value.y);
    const float2 rounded = unpack_bfloat(hi);
    const uint32_t lo = pack_bfloat(value.x - rounded.x, value.y - rounded.y);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int row = i / 2 * 16 + i % 2 * 2 + 4 * j;
      store_shared((target ^ (row & 7) << 4) + row * 128, j < 3 ? hi : lo);
    }
  }
  const uint32_t entry = place.thread / 8;
  if (smem.window_weight[entry] == 0.0f) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      store_shared(side + value_side_offset<kColumns>(row_of_entry(entry), place.thread % 8 + 8 * i),
                   make_uint4(0, 0, 0, 0));
    }
  }
}

// The power of two that brings the largest of c to 2^14 or more, as far as there is one.
template <int kColumns>
__device__ __forceinline__ float scale_power(const SharedStorage<kColumns>& smem) {
  constexpr float kTarget = 16384.0f;
  constexpr float kLargestPower = 5.192296858534828e33f;  // 2^112
  const float4 largest = *reinterpret_cast<const float4*>(smem.largest_scale);
  return kTarget * fminf(power_to_one(fmaxf(fmaxf(largest.x, largest.y), fmaxf(largest.z, largest.w))), kLargestPower);
}

// c of a place as two halves, of which the largest is below 2^15: 39 bits from there down, beyond which E is not
// resolved.
template <int kColumns>
__device__ __forceinline__ void prepare_diagonal(SharedStorage<kColumns>& smem, uint32_t place) {
  const float scaled = smem.code_scale[key_of_place(place)] * scale_power(smem);
  const __half hi = __float2half_rn(scaled);
  const __half mid = __float2half_rn(scaled - __half2float(hi));
  const uint32_t shift = place % 2 * 16;
  smem.diagonal[place / 8].words[place % 8] = make_uint2(static_cast<uint32_t>(__half_as_ushort(hi)) << shift,
                                                         static_cast<uint32_t>(__half_as_ushort(mid)) << shift);
}

// Step 1: all operands of a program whose copies have begun, but for prepare_diagonal(), which comes after a barrier.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void prepare(SharedStorage<kColumns>& smem, const Place& place, CodeFragments& codes,
                                        CodeFragments& transposed) {
  wait_for_copies();
  __syncthreads();
  const KeyPair pair(place);
  prepare_window_keys<kDecay>(smem, pair);
  prepare_key_factors<kDecay>(smem, pair);
  prepare_values(smem, place);
  if (place.thread == 0) smem.non_finite = 0;
  load_transposed_codes(smem, place, transposed);
  load_codes(smem, place, codes);
}

}  // namespace leapquant::cuda
