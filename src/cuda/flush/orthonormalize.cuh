// SPDX-License-Identifier: Apache-2.0
//
// Orthonormalization of a thin matrix, one row a thread: Cholesky QR, and Gram-Schmidt where that is not safe.
#pragma once

#include "cuda/common/gram_schmidt.cuh"
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

// row = row L^-T, with L the factor in shared memory.
template <int kColumns>
__device__ __forceinline__ void apply_cholesky(const SharedStorage<kColumns>& smem, ThinRow<kColumns>& row) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    ThinRow<kColumns> factor;
    load_row<kColumns>(smem.cholesky[i], factor);
#pragma unroll
    for (int m = 0; m < i; ++m) row[i] = fmaf(-factor[m], row[m], row[i]);
    row[i] *= factor[i];
  }
}

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

// The Cholesky factor L of the summed Gram matrix, its diagonal inverted, and how good it is: by one warp.
template <int kColumns>
__device__ __forceinline__ void find_cholesky(SharedStorage<kColumns>& smem, int rank) {
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
  float factor[kColumns][kColumns];
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
  if (threadIdx.x % 32 != 0) return;
  smem.conditioning = !clear        ? Conditioning::kUnclear
                      : !good       ? Conditioning::kIndependent
                      : !orthogonal ? Conditioning::kGood
                                    : Conditioning::kOrthogonal;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) smem.cholesky[i][j] = factor[i][j];
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
