// SPDX-License-Identifier: Apache-2.0
//
// Orthonormalization of a thin matrix, one row a thread: Cholesky QR, and Gram-Schmidt where that is not safe.
#pragma once

#include "cuda/flush/prepare.cuh"

namespace leapquant::cuda {

// Sums that ended in a lane: numbers first ... end - 1, in value[0 ...].
struct Sums {
  int first;
  int end;
};

// Sums kCount values over the warp. Every exchange halves the values that a lane goes on with, until it has its own.
template <int kCount>
__device__ __forceinline__ Sums scatter_sums(float (&value)[kCount], uint32_t lane) {
  Sums own{0, kCount};
  int count = kCount;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    if (count == 1) {
      value[0] += __shfl_xor_sync(kFullWarp, value[0], step);
      continue;
    }
    const int half = (count + 1) / 2;
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= half) break;
      const float high = half + i < count ? value[half + i] : 0.0f;
      const float received = __shfl_xor_sync(kFullWarp, upper ? value[i] : high, step);
      value[i] = (upper ? high : value[i]) + received;
    }
    own = upper ? Sums{own.first + half, own.end} : Sums{own.first, min(own.end, own.first + half)};
    count = half;
  }
  return own;
}

// How far the columns of a thin matrix are from depending on one another.
enum class Conditioning {
  kUnclear,      // they may depend on one another
  kIndependent,  // L is good enough to make columns for another product
  kGood,         // ... and to be applied to the result of a product
  kOrthogonal    // ... and makes columns orthonormal at once
};

// The Cholesky factor L of a Gram matrix, its diagonal inverted.
template <int kColumns>
struct Cholesky {
  float factor[kColumns][kColumns];
  Conditioning conditioning;

  // row = row L^-T.
  __device__ __forceinline__ void apply(ThinRow<kColumns>& row) const {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
#pragma unroll
      for (int m = 0; m < i; ++m) row[i] = fmaf(-factor[i][m], row[m], row[i]);
      row[i] *= factor[i][i];
    }
  }
};

// The warp's part of the Gram matrix, lower triangle by rows.
template <int kColumns>
__device__ __forceinline__ void write_gram(SharedStorage<kColumns>& smem, const Place& place,
                                           const ThinRow<kColumns>& row) {
  constexpr int kCount = kColumns * (kColumns + 1) / 2;
  float product[kCount];
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) product[i * (i + 1) / 2 + j] = row[i] * row[j];
  }
  const Sums own = scatter_sums(product, place.lane);
  constexpr int kKept = (kCount + 31) / 32;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (own.first + i < own.end) smem.gram[own.first + i][place.warp] = product[i];
  }
}

// The Cholesky factor of the summed Gram matrix: uniform over the block, as every thread computes the same from the
// same numbers.
template <int kColumns>
__device__ __forceinline__ void find_cholesky(const SharedStorage<kColumns>& smem, int rank,
                                              Cholesky<kColumns>& cholesky) {
  // Of a pivot, relative to its column: fp32 sums resolve it down to about 1e-6.
  constexpr float kClearPivot = 1e-5f;
  // The rounding of a product with S grows by the root of the smallest pivot when L is applied to its result; 30 times
  // is far below what E is of S: down to 1e-2 for a state that counts as not captured almost exactly.
  constexpr float kGoodPivot = 1e-3f;
  // Columns are orthonormal after one pass up to about 3e-7 by the smallest pivot.
  constexpr float kOrthogonalPivot = 4e-2f;
  // Of a pivot, relative to the largest column, squared: far above kDependentNorm of core/numerics.h, which is 4e-6.
  constexpr float kClearNorm = 1e-9f;
  // Squares that neither overflow nor lose what matters of their sum, or of another product with S, to underflow.
  constexpr float kSmallest = 1e-26f;
  constexpr float kLargest = 1e32f;
  auto& factor = cholesky.factor;
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      const float4 part = *reinterpret_cast<const float4*>(smem.gram[i * (i + 1) / 2 + j]);
      factor[i][j] = (part.x + part.y) + (part.z + part.w);
    }
    largest = fmaxf(largest, factor[i][i]);
  }
  const float smallest = fmaxf(kClearNorm * largest, kSmallest);
  bool clear = largest < kLargest;
  bool good = true;
  bool orthogonal = true;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    // Row i of L in the place of row i of the Gram matrix. A column beyond the rank is zero: any pivot will do.
    if (i >= rank) factor[i][i] = largest;
    const float whole = factor[i][i];
#pragma unroll
    for (int j = 0; j < i; ++j) {
#pragma unroll
      for (int m = 0; m < j; ++m) factor[i][j] = fmaf(-factor[i][m], factor[j][m], factor[i][j]);
      factor[i][j] *= factor[j][j];  // the inverse of the pivot
    }
    float rest = whole;
#pragma unroll
    for (int m = 0; m < i; ++m) rest = fmaf(-factor[i][m], factor[i][m], rest);
    clear = clear && rest >= fmaxf(kClearPivot * whole, smallest);
    good = good && rest >= kGoodPivot * whole;
    orthogonal = orthogonal && rest >= kOrthogonalPivot * whole;
    factor[i][i] = rsqrtf(rest);
  }
  cholesky.conditioning = !clear        ? Conditioning::kUnclear
                          : !good       ? Conditioning::kIndependent
                          : !orthogonal ? Conditioning::kGood
                                        : Conditioning::kOrthogonal;
}

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

// row = the thread's row of orth of the matrix, whatever it is.
template <int kColumns>
__device__ __forceinline__ void gram_schmidt(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                             ThinRow<kColumns>& row) {
  __syncthreads();  // smem.thin has been read
#pragma unroll
  for (int r = 0; r < kColumns; ++r) smem.thin[place.own][r] = row[r];
  __syncthreads();
  if (place.warp == 0) orthonormalize_columns(smem.thin, rank);
  __syncthreads();
  load_row<kColumns>(smem.thin[place.own], row);
}

}  // namespace leapquant::cuda
