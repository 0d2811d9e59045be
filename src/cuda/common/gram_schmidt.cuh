// SPDX-License-Identifier: Apache-2.0
//
// orth of step 2 by the letter: for the import of states, and for the flush where a faster way is not safe.
#pragma once

#include "cuda/common/program.h"
#include "cuda/common/ptx.cuh"

namespace leapquant::cuda {

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

// Gram-Schmidt with every projection applied twice, by one warp, on a thin matrix in shared memory: for columns that
// may depend on one another. Such a column becomes zero: see kDependentNorm and kSecondProjectionLoss in
// core/numerics.h.
template <int kColumns>
__device__ __noinline__ void orthonormalize_columns(float (&matrix)[kDim][kColumns], int rank) {
  constexpr float kDependentNorm = 4e-6f;
  constexpr float kSecondProjectionLoss = 0.5f;
  const int lane = threadIdx.x % 32;
  float thin[kColumns][4];
  float largest = 0;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      thin[r][i] = matrix[lane + 32 * i][r];
      largest = fmaxf(largest, fabsf(thin[r][i]));
    }
  }
  const float scale = power_to_one(__uint_as_float(__reduce_max_sync(kFullWarp, __float_as_uint(largest))));
  const auto dot = [](const float(&a)[4], const float(&b)[4]) {
    return warp_sum(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]);
  };
  float largest_norm = 0;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) thin[r][i] *= scale;
    largest_norm = fmaxf(largest_norm, sqrtf(dot(thin[r], thin[r])));
  }
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    float before = 0;
    float norm = 0;
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      float projection[kColumns];
#pragma unroll
      for (int earlier = 0; earlier < r; ++earlier) projection[earlier] = dot(thin[earlier], thin[r]);
#pragma unroll
      for (int earlier = 0; earlier < r; ++earlier) {
#pragma unroll
        for (int i = 0; i < 4; ++i) thin[r][i] = fmaf(-projection[earlier], thin[earlier][i], thin[r][i]);
      }
      before = norm;
      norm = sqrtf(dot(thin[r], thin[r]));
    }
    const bool dependent = r >= rank || norm <= kDependentNorm * largest_norm || norm < kSecondProjectionLoss * before;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      thin[r][i] = dependent ? 0.0f : thin[r][i] / norm;
      matrix[lane + 32 * i][r] = thin[r][i];
    }
  }
}

}  // namespace leapquant::cuda
