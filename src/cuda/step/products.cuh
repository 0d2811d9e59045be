// SPDX-License-Identifier: Apache-2.0
//
// T3 over the codes: one pass on the tensor cores serves both sides.
#pragma once

#include "cuda/step/load.cuh"

namespace leapquant::cuda::step {

// Codes are exact as bfloats. The inner index of a product may run over the keys in any order as long as both operands
// agree: a lane's 16 codes of a row are its share of four products as they lie in memory. Of the eight columns, 0 ... 2
// are hi, mid and lo of the key side, 4 ... 6 those of the query side; 3 and 7 repeat their neighbours and are not used.
__device__ __forceinline__ void multiply_codes(SharedStorage& smem, const Place& place, const Codes& codes,
                                               uint32_t exponents, float inverse_power) {
  const uint32_t row = place.g / 4 * kTerms + min(place.g % 4, 2u);
  const uint32_t thin = shared_address(smem.thin[row]) + 32 * place.t;
  float sum[2][4] = {};  // rows 32 warp + 16 i + g, + 8 x columns 2 t, 2 t + 1
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
    float2& product = smem.product[32 * place.warp + 8 * i + place.g];
    if (place.t % 2 == 0) reinterpret_cast<float*>(&product)[place.t / 2] = total * inverse_power;
  }
  __syncwarp();
}

}  // namespace leapquant::cuda::step
