// SPDX-License-Identifier: Apache-2.0
//
// Step 3 number by number: what the flush and the import of states make of the residual E.
#pragma once

#include "cuda/common/program.h"
#include "cuda/common/ptx.cuh"

namespace leapquant::cuda {

constexpr float kScaleFloor = 1e-12f;  // as in core/numerics.h

// Whether the state was finite in a column, by the sum of abs E there: NaN and Inf of state and factors reach it.
__device__ __forceinline__ bool is_finite_sum(float sum) {
  constexpr float kLargestFloat = 3.402823466e38f;
  return sum <= kLargestFloat;
}
// s_k' of a column, by the same sum. NaN stays.
__device__ __forceinline__ float key_scale_of(float sum) {
  const float mean = sum * (1.0f / kDim);
  const float root = square_root(mean);
  return mean <= kScaleFloor * kScaleFloor || root < kScaleFloor ? kScaleFloor : root;
}
// s_v' of a row, by the largest of abs E / s_k' there.
__device__ __forceinline__ float value_scale_of(float largest) { return fmaxf(largest, kScaleFloor); }

// What makes codes of a row's E / s_k'.
__device__ __forceinline__ float code_factor_of(float value_scale) { return divide(127.0f, value_scale); }
// Four codes of a row's E / s_k', as they are stored. In a state that is not finite, values are NaN, which gives 0 or
// -1, or have a factor of zero: codes stay in range.
__device__ __forceinline__ uint32_t codes_of(float a, float b, float c, float d, float factor) {
#if __CUDA_ARCH__ >= 900
  return pack_rounded(a * factor, b * factor, pack_rounded(c * factor, d * factor, 0));
#else
  // Adding 1.5 * 2^23 rounds half to even and leaves the code in the low byte.
  constexpr float kRounder = 12582912.0f;
  const auto code = [=](float scaled) { return __float_as_uint(fmaf(scaled, factor, kRounder)); };
  return __byte_perm(__byte_perm(code(a), code(b), 0x0040), __byte_perm(code(c), code(d), 0x0040), 0x5410);
#endif
}

}  // namespace leapquant::cuda
