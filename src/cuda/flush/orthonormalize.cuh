// SPDX-License-Identifier: Apache-2.0
//
// Orthonormalization of a thin matrix, one row a thread: Cholesky QR, and Gram-Schmidt where that is not safe.
#pragma once

#include "cuda/common/gram_schmidt.cuh"
#include "cuda/flush/prepare.cuh"

namespace leapquant::cuda {

// The Cholesky factor L of a Gram matrix: its lower triangle, the diagonal inverted. The same in all threads.
template <int kColumns>
using CholeskyFactor = float[kColumns][kColumns];

// row = row L^-T.
template <int kColumns>
__device__ __forceinline__ void apply_cholesky(const CholeskyFactor<kColumns>& factor, ThinRow<kColumns>& row) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int m = 0; m < i; ++m) row[i] = fmaf(-factor[i][m], row[m], row[i]);
    row[i] *= factor[i][i];
  }
}

// The Gram matrix from the warps' parts: elements a lane adds up, then all of the lower triangle.
template <int kColumns>
__device__ __forceinline__ void load_gram(SharedStorage<kColumns>& smem, const Place& place, int buffer,
                                          CholeskyFactor<kColumns>& gram) {
  constexpr int kElements = kColumns * kColumns;
#pragma unroll
  for (int first = 0; first < kElements; first += 32) {
    const uint32_t element = first + place.lane % kElements;
    const uint32_t row = element / kColumns;
    const uint32_t column = element % kColumns;
    const auto part = [&](int warp) { return smem.gram[buffer][warp][row][column]; };
    smem.gram_sum[place.warp][row][column] = (part(0) + part(1)) + (part(2) + part(3));
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kColumns; ++i) load_row<kColumns>(smem.gram_sum[place.warp][i], gram[i]);
}

// The Cholesky factor of the summed Gram matrix, and how good it is: by every thread for itself, so that nothing has to
// be exchanged.
template <int kColumns>
__device__ __forceinline__ Conditioning find_cholesky(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                                      int buffer, CholeskyFactor<kColumns>& factor) {
  // Of a column's square over its pivot: fp32 sums resolve a pivot down to about 1e-6 of it.
  constexpr float kClearRatio = 1e5f;
  // The rounding of a product with S grows by the root of the largest ratio when L is applied to its result; 30 times
  // is far below what E is of S: down to 1e-2 for a state that counts as not captured almost exactly.
  constexpr float kGoodRatio = 1e3f;
  // Columns are orthonormal after one pass up to about 3e-7 times the largest ratio.
  constexpr float kOrthogonalRatio = 25.0f;
  // Of a pivot, relative to the largest column, squared: far above kDependentNorm of core/numerics.h, which is 4e-6.
  constexpr float kClearNorm = 1e-9f;
  // Squares that neither overflow nor lose what matters of their sum, or of another product with S, to underflow.
  constexpr float kSmallest = 1e-26f;
  constexpr float kLargest = 1e32f;
  load_gram(smem, place, buffer, factor);
  float largest = factor[0][0];
#pragma unroll
  for (int i = 1; i < kColumns; ++i) largest = fmaxf(largest, factor[i][i]);
  const float smallest = fmaxf(kClearNorm * largest, kSmallest);
  bool clear = largest < kLargest;
  float worst = 0;
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const float whole = k < rank ? factor[k][k] : largest;  // a column beyond the rank is zero: any pivot will do
    float pivot = whole;
#pragma unroll
    for (int m = 0; m < k; ++m) pivot = fmaf(-factor[k][m], factor[k][m], pivot);
    const float inverse = inverse_square_root(pivot);
    clear = clear && pivot >= smallest;
    worst = fmaxf(worst, whole * inverse * inverse);
    factor[k][k] = inverse;
#pragma unroll
    for (int i = k + 1; i < kColumns; ++i) {
#pragma unroll
      for (int m = 0; m < k; ++m) factor[i][k] = fmaf(-factor[i][m], factor[k][m], factor[i][k]);
      factor[i][k] *= inverse;
    }
  }
  if (!__all_sync(kFullWarp, clear && worst <= kClearRatio)) return Conditioning::kUnclear;
  if (!__all_sync(kFullWarp, worst <= kGoodRatio)) return Conditioning::kIndependent;
  return __all_sync(kFullWarp, worst <= kOrthogonalRatio) ? Conditioning::kOrthogonal : Conditioning::kGood;
}

// The same of columns that are nearly orthonormal, of a Gram matrix I + d: to first order in d, L = I + d / 2 on the
// diagonal and I + d below it. After a first pass by a good L, d is at most some 3e-4, and its square what fp32 rounds.
template <int kColumns>
__device__ __forceinline__ void find_small_cholesky(SharedStorage<kColumns>& smem, const Place& place, int buffer,
                                                    CholeskyFactor<kColumns>& factor) {
  load_gram(smem, place, buffer, factor);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) factor[i][i] = fmaf(-0.5f, factor[i][i], 1.5f);
}

// row = the thread's row of orth of the matrix, whatever it is.
template <int kColumns>
__device__ __forceinline__ void gram_schmidt(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                             ThinRow<kColumns>& row) {
  __syncthreads();  // smem.thin has been read
#pragma unroll
  for (int r = 0; r < kColumns; ++r) smem.thin[place.thread][r] = row[r];
  __syncthreads();
  if (place.warp == 0) orthonormalize_columns(smem.thin, rank);
  __syncthreads();
  load_row<kColumns>(smem.thin[place.thread], row);
}

}  // namespace leapquant::cuda
