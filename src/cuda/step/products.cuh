// SPDX-License-Identifier: Apache-2.0
//
// T3 over the codes: one pass on the tensor cores serves both sides.
//
// The inner index of a product may run over the keys in any order as long as both operands agree: a lane's 16 codes of
// a row are its share of the products as they lie in memory. The thin operand, x = 2^n c kn and 2^n c qn with |x| < 2,
// is a number of 61 bits whose digits are bytes: products of bytes are exact, and the codes need no conversion. That
// leaves a relative error of 2^-19 at most down to |x| = 2^-42. A program with anything smaller, other than zero, or
// not finite takes three bfloats for each x, which have its whole range; its codes then become bfloats, exactly.
#pragma once

#include "cuda/step/dots.cuh"

namespace leapquant::cuda::step {

constexpr float kSmallestDigits = 0x1p-42f;
constexpr float kFirstWord = 0x1p29f;  // units of the first word in 1; of the second in those of the first:
constexpr float kSecondWord = 0x1p31f;
constexpr float kQueryBoost = 8.0f;  // |qn| is below 2^-3

// A number as four signed digits of base 256.
__device__ __forceinline__ uint32_t digits_of(int32_t number) {
  constexpr uint32_t kMiddle = 0x80808080u;
  return (static_cast<uint32_t>(number) + kMiddle) ^ kMiddle;
}

// Where the digits of a key lie: those of its side `half`, of the first word, the least digit. The others follow every
// 64 bytes, those of the second word 4 bytes behind.
__device__ __forceinline__ uint32_t digit_offset(uint32_t key, uint32_t half) {
  const uint32_t t = key / 16 % 4;  // the lane of four that has this key's codes
  const uint32_t block = key / 64 * 2 + key / 8 % 2;
  return block * kDigitBlock + half * kDigitSide + 16 * t + key / 4 % 2 * 8 + key % 4;
}

// Four digits of a pair of keys.
__device__ __forceinline__ void write_word(char* first, int32_t x, int32_t y) {
  const uint32_t word_x = digits_of(x);
  const uint32_t word_y = digits_of(y);
  *reinterpret_cast<uint16_t*>(first) = static_cast<uint16_t>(__byte_perm(word_x, word_y, 0x0040));
  *reinterpret_cast<uint16_t*>(first + 64) = static_cast<uint16_t>(__byte_perm(word_x, word_y, 0x0051));
  *reinterpret_cast<uint16_t*>(first + 128) = static_cast<uint16_t>(__byte_perm(word_x, word_y, 0x0062));
  *reinterpret_cast<uint16_t*>(first + 192) = static_cast<uint16_t>(__byte_perm(word_x, word_y, 0x0073));
}

// Zero, or a magnitude from kSmallestDigits to 2. By their bits: magnitudes lie in the order of these, NaN last.
__device__ __forceinline__ bool fits_digits(float x) {
  const uint32_t magnitude = __float_as_uint(fabsf(x));
  const uint32_t smallest = __float_as_uint(kSmallestDigits);
  return (magnitude == 0) | (magnitude - smallest <= __float_as_uint(2.0f) - smallest);
}

// Half 0 of a warp writes the key side of its channels, half 1 the query side. Whether they fit.
__device__ __forceinline__ bool write_digits(SharedStorage& smem, const Place& place, const PairSides& side,
                                             float2 code_scale) {
  const float2 own = place.half == 0 ? side.key : make_float2(kQueryBoost * side.query.x, kQueryBoost * side.query.y);
  const float2 x = make_float2(code_scale.x * own.x, code_scale.y * own.y);
  const float2 units = make_float2(kFirstWord * x.x, kFirstWord * x.y);
  const int32_t word_x = __float2int_rn(units.x);
  const int32_t word_y = __float2int_rn(units.y);
  const float2 rest = make_float2(units.x - static_cast<float>(word_x), units.y - static_cast<float>(word_y));
  char* const first = smem.digits + digit_offset(32 * place.warp + 2 * (place.lane % 16), place.half);
  write_word(first, word_x, word_y);
  write_word(first + 4, __float2int_rn(kSecondWord * rest.x), __float2int_rn(kSecondWord * rest.y));
  return fits_digits(x.x) & fits_digits(x.y);
}

__device__ __forceinline__ void write_terms(SharedStorage& smem, const Place& place, const Sides& side,
                                            float code_scale) {
  const BfloatPair terms = split_pair(code_scale * side.key, kQueryBoost * code_scale * side.query);
  const uint32_t term[kTerms] = {terms.hi, terms.mid, terms.lo};
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    smem.terms[0][i][place.thread] = static_cast<uint16_t>(term[i]);
    smem.terms[1][i][place.thread] = static_cast<uint16_t>(term[i] >> 16);
  }
}

// Sums of eight values over the lanes whose numbers differ in bits 2 and 3: the lane with number n there gets those of
// values 2 n and 2 n + 1, as the first two.
__device__ __forceinline__ void reduce_digits(float (&value)[8], uint32_t lane) {
#pragma unroll
  for (int half = 4, lanes = 8; half > 1; half /= 2, lanes /= 2) {
    const bool upper = (lane & lanes) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? value[half + i] : value[i];
      const float sent = upper ? value[i] : value[half + i];
      value[i] = kept + __shfl_xor_sync(kFullWarp, sent, lanes);
    }
  }
}

// Rows are digits, columns value channels: a lane's codes are the operand as they lie in its registers.
__device__ __forceinline__ void multiply_digits(SharedStorage& smem, const Place& place, const Codes& codes,
                                                float inverse_power) {
  const uint32_t own = shared_address(smem.digits) + place.g / 4 * kDigitSide + place.g % 4 * 64 + 16 * place.t;
  int32_t sum[4][4] = {};  // channels 8 i + 2 t, + 1 of the warp's: of digit row g, then of row g + 8
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const uint4 low = load_shared16(own + 2 * c * kDigitBlock);
    const uint4 high = load_shared16(own + (2 * c + 1) * kDigitBlock);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 b = codes.of[i][c];
      multiply_bytes(sum[i], low.x, low.y, low.z, low.w, b.x, b.y);
      multiply_bytes(sum[i], high.x, high.y, high.z, high.w, b.z, b.w);
    }
  }
  // Row g is digit g % 4 of a side's first word, row g + 8 that of its second.
  const float unit = __uint_as_float((127 + 8 * (place.g % 4)) << 23) / kFirstWord;
  float value[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int32_t* const pair = &sum[i / 2][i % 2];
    value[i] = fmaf(static_cast<float>(pair[2]), unit / kSecondWord, static_cast<float>(pair[0]) * unit);
  }
  // Over the four digits. Each of their lanes gets two neighbouring channels.
  reduce_digits(value, place.lane);
  const float scale = place.g < 4 ? 1.0f : 1.0f / kQueryBoost;
  float2& product =
      *reinterpret_cast<float2*>(&smem.product[place.g / 4][32 * place.warp + 8 * (place.g % 4) + 2 * place.t]);
  product = make_float2(value[0] * scale * inverse_power, value[1] * scale * inverse_power);
  __syncwarp();
}

// Rows are value channels. Of the eight columns, 0 ... 2 are hi, mid and lo of the key side, 4 ... 6 those of the query
// side; 3 and 7 repeat their neighbours and are not used.
__device__ __forceinline__ void multiply_terms(SharedStorage& smem, const Place& place, const Codes& codes,
                                               uint32_t exponents, float inverse_power) {
  const uint32_t thin = shared_address(smem.terms[place.g / 4][min(place.g % 4, 2u)]) + 32 * place.t;
  float sum[2][4] = {};  // channels 16 i + g, + 8 x columns 2 t, 2 t + 1
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const uint4 low = load_shared16(thin + 128 * c);
    const uint4 high = load_shared16(thin + 128 * c + 16);
    const uint32_t b[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint4& upper = codes.of[2 * i][c];
      const uint4& lower = codes.of[2 * i + 1][c];
      const uint32_t a[2][4] = {{upper.x, upper.y, upper.z, upper.w}, {lower.x, lower.y, lower.z, lower.w}};
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        multiply_bfloat(sum[i], codes_to_bfloats<0x4140>(a[0][m], exponents),
                        codes_to_bfloats<0x4140>(a[1][m], exponents), codes_to_bfloats<0x4342>(a[0][m], exponents),
                        codes_to_bfloats<0x4342>(a[1][m], exponents), b[2 * m], b[2 * m + 1]);
      }
    }
  }
  // A side's three columns lie with two neighbouring lanes.
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* const pair = &sum[i / 2][i % 2 * 2];
    const float own = place.t % 2 == 0 ? pair[0] + pair[1] : pair[0];
    const float total = own + __shfl_xor_sync(kFullWarp, own, 1);
    float* const product = &smem.product[place.t / 2][32 * place.warp + 8 * i + place.g];
    if (place.t % 2 == 0) *product = total * (place.t == 0 ? 1.0f : 1.0f / kQueryBoost) * inverse_power;
  }
  __syncwarp();
}

// smem.product of the warp's rows. Passes a barrier.
__device__ __forceinline__ void multiply_codes(SharedStorage& smem, const Place& place, const Codes& codes,
                                               const Sides& side, const PairSides& pair, float code_scale,
                                               float inverse_power, uint32_t exponents) {
  const bool fits = write_digits(smem, place, pair, pair_of_lanes(place, code_scale));
  if (__syncthreads_and(fits)) {
    multiply_digits(smem, place, codes, inverse_power);
  } else {
    write_terms(smem, place, side, code_scale);
    __syncthreads();
    multiply_terms(smem, place, codes, exponents, inverse_power);
  }
}

}  // namespace leapquant::cuda::step
