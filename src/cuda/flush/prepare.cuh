// SPDX-License-Identifier: Apache-2.0
//
// Step 1 as operands: the codes as bfloats, and both sides of the rank-20 part.
#pragma once

#include "cuda/flush/load.cuh"

namespace leapquant::cuda {

// Byte offset of a pair of places (2 pair, 2 pair + 1) in a row of the key side.
template <int kColumns>
__device__ __forceinline__ uint32_t key_side_offset(uint32_t row, uint32_t pair) {
  return static_cast<uint32_t>(pair / 32 * Layout<kColumns>::kKeyHalfBytes + row * 128 +
                               ((pair % 32 / 4 ^ (row & 7)) << 4) + pair % 4 * 4);
}

// Where a lane works while the key side is made: a pair of places, and half of the entries and factors.
struct KeyPair {
  uint32_t pair;  // of places
  uint32_t keys;  // pair of keys that lies there
  uint32_t half;

  __device__ __forceinline__ explicit KeyPair(const Place& place)
      : pair(16 * place.warp + place.lane % 16), keys(key_of_place(2 * pair) / 2), half(place.lane / 16) {}
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

// Window entries: w D k as hi and mid. With a decay by head the weights hold D.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void prepare_window_keys(SharedStorage<kColumns>& smem, const KeyPair& own) {
  constexpr int kOwnEntries = kEntries / 2;
  const uint32_t keys = shared_address(smem.operand[0]);
  const uint32_t gates = shared_address(smem.operand[1]);
  const uint32_t first = staged_window_offset(kOwnEntries * own.half, own.keys / 4) + own.keys % 4 * 4;
  uint32_t gate[kOwnEntries];
  uint32_t key[kOwnEntries];
  float weight[kOwnEntries];
#pragma unroll
  for (int i = 0; i < kOwnEntries; ++i) {
    if constexpr (kDecay == Decay::kByChannel) gate[i] = load_shared(gates + first + i * 2 * kDim);
    key[i] = load_shared(keys + first + i * 2 * kDim);
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
  const uint32_t target =
      shared_address(smem.key_side) + key_side_offset<kColumns>(row_of_entry(kOwnEntries * own.half), own.pair);
#pragma unroll
  for (int i = kOwnEntries - 1; i >= 0; --i) {
    float2 value = unpack_bfloat(key[i]);
    value = make_float2(weight[i] * value.x, weight[i] * value.y);
    if constexpr (kDecay == Decay::kByChannel) value = make_float2(value.x * decay[i].x, value.y * decay[i].y);
    const bool live = weight[i] != 0.0f;  // otherwise nothing, whatever the rows hold
    const BfloatPair terms = split_pair<2>(live ? value.x : 0.0f, live ? value.y : 0.0f);
    // Row i or i + 4 of its group of eight, whose chunks are exchanged accordingly.
    const uint32_t place = (target ^ (i % 4) << 4) + row_of_entry(i) * 128;
    store_shared(place, terms.hi);
    store_shared(place + Layout<kColumns>::kBlockBytes, terms.mid);
  }
}

// What the checkpoint has decayed by at the pair of keys.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ float2 checkpoint_decay(const SharedStorage<kColumns>& smem, const KeyPair& own) {
  if constexpr (kDecay == Decay::kByHead) return make_float2(smem.decay[0], smem.decay[0]);
  const float2 logarithm = reinterpret_cast<const float2*>(smem.decay)[own.keys];
  return make_float2(expf(logarithm.x), expf(logarithm.y));
}

// Column scales c = s_k D / 127, as two bfloats wherever they are used, and old key factors u D.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void prepare_key_factors(SharedStorage<kColumns>& smem, const KeyPair& own) {
  const float2 decay = checkpoint_decay<kDecay>(smem, own);
  const float2 scale = reinterpret_cast<const float2*>(smem.key_scale)[own.keys];
  const BfloatPair terms = split_pair<2>(divide_by_127(scale.x) * decay.x, divide_by_127(scale.y) * decay.y);
  if (own.half == 0) {
    const float2 hi = unpack_bfloat(terms.hi);
    const float2 mid = unpack_bfloat(terms.mid);
    reinterpret_cast<float2*>(smem.code_scale)[own.pair] = make_float2(hi.x + mid.x, hi.y + mid.y);
  } else {
    reinterpret_cast<uint2*>(smem.code_scale_terms)[own.pair] =
        make_uint2(__byte_perm(terms.hi, terms.mid, 0x5410), __byte_perm(terms.hi, terms.mid, 0x7632));
  }
  const uint32_t target = shared_address(smem.key_side);
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const uint32_t factor = kColumns / 2 * own.half + i;
    const float2 value = unpack_half(reinterpret_cast<const uint32_t*>(smem.key_factor[factor])[own.keys]);
    const BfloatPair terms = split_pair<3>(value.x * decay.x, value.y * decay.y);
    const uint32_t term[4] = {terms.hi, terms.mid, terms.lo, terms.hi};
    const uint32_t row = (2 + factor / 4) * 16 + factor % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) store_shared(target + key_side_offset<kColumns>(row + 4 * j, own.pair), term[j]);
  }
}

// Old value factors as hi, hi, hi, lo, which is exact (11 bits); updates of weight 0 become zero.
template <int kColumns>
__device__ __forceinline__ void prepare_values(SharedStorage<kColumns>& smem, const Place& place) {
  const uint32_t target = shared_address(smem.value_side);
  const uint32_t pair = place.thread % 64;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    const uint32_t factor = place.thread / 64 + 2 * i;
    const float2 value = unpack_half(reinterpret_cast<const uint32_t*>(smem.value_factor[factor])[pair]);
    const uint32_t hi = pack_bfloat(value.x, value.y);
    const float2 rounded = unpack_bfloat(hi);
    const uint32_t lo = pack_bfloat(value.x - rounded.x, value.y - rounded.y);
    const uint32_t row = (1 + factor / 4) * 16 + factor % 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      store_shared(target + value_side_offset<kColumns>(row + 4 * j, pair / 4) + pair % 4 * 4, j < 3 ? hi : lo);
    }
  }
  const uint32_t entry = place.thread / 8;
  if (smem.window_weight[entry] == 0.0f) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      store_shared(target + value_side_offset<kColumns>(row_of_entry(entry), place.thread % 8 + 8 * i),
                   make_uint4(0, 0, 0, 0));
    }
  }
}

// Raw codes into bfloats: the lane's fragments, and a copy of them in shared memory for products with values as the
// inner index. Word j of a lane's 16 bytes is places 16 j + 2 t, 16 j + 2 t + 1 and the two 8 after them.
template <int kColumns>
__device__ __forceinline__ void expand_codes(SharedStorage<kColumns>& smem, const Place& place, uint32_t exponents,
                                             const RawCodes& raw, CodeFragments& codes) {
  const uint32_t row = 16 * place.warp + place.lane % 16;
  const uint32_t target = shared_address(smem.codes) + row * 128;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      uint32_t(&fragment)[4] = codes[tile][step];
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const uint32_t word = reinterpret_cast<const uint32_t*>(&raw[2 * tile + high][step / 4])[step % 4];
        fragment[high] = codes_to_bfloats<0x4140>(word, exponents);
        fragment[2 + high] = codes_to_bfloats<0x4342>(word, exponents);
      }
      store_matrices(fragment, target + step / 4 * sizeof(smem.codes[0]) + tile * 64 * 128 +
                                   ((2 * (step % 4) + place.lane / 16 ^ (row & 7)) << 4));
    }
  }
}

// Step 1: all operands of a program whose copies have begun.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void prepare(const FlushArguments& arguments, SharedStorage<kColumns>& smem,
                                        const Place& place, const char* stored_codes, CodeFragments& codes) {
  RawCodes raw;
  load_codes(stored_codes, place, raw);
  wait_for_copies();
  __syncthreads();
  const KeyPair pair(place);
  prepare_window_keys<kDecay>(smem, pair);
  prepare_key_factors<kDecay>(smem, pair);
  prepare_values(smem, place);
  if (place.thread == 0) smem.non_finite = 0;
  expand_codes(smem, place, arguments.code_exponents, raw, codes);
}

}  // namespace leapquant::cuda
