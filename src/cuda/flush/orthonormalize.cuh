// SPDX-License-Identifier: Apache-2.0
//
// Orthonormalization of a thin matrix, one row a thread: Cholesky QR, and Gram-Schmidt where that is not safe.
#pragma once

#include "cuda/common/gram_schmidt.cuh"
#include "cuda/flush/prepare.cuh"

namespace leapquant::cuda {

// row = row L^-T, with the warp's copy of the factor.
template <int kColumns>
__device__ __forceinline__ void apply_cholesky(const SharedStorage<kColumns>& smem, const Place& place,
                                               ThinRow<kColumns>& row) {
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    ThinRow<kColumns> factor;
    load_row<kColumns>(smem.cholesky[place.warp][i], factor);
#pragma unroll
    for (int m = 0; m < i; ++m) row[i] = fmaf(-factor[m], row[m], row[i]);
    row[i] *= factor[i];
  }
}

// The Cholesky factor L of the summed Gram matrix, its diagonal inverted, and how good it is: by every warp for itself,
// with an element or two a lane, all columns updated at once.
template <int kColumns>
__device__ __forceinline__ Conditioning find_cholesky(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                                      int buffer) {
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
  constexpr int kOwn = (kColumns * kColumns + 31) / 32;
  constexpr int kSliceRows = kColumns / kOwn;
  const int column = static_cast<int>(place.lane) % kColumns;
  const int first_row = static_cast<int>(place.lane) / kColumns % kSliceRows;
  float element[kOwn];  // rows first_row, first_row + kSliceRows, ...
  float whole[kOwn];
  uint32_t diagonal = 0;
#pragma unroll
  for (int s = 0; s < kOwn; ++s) {
    const int row = first_row + s * kSliceRows;
    const auto part = [&](int warp) { return smem.gram[buffer][warp][row][column]; };
    element[s] = (part(0) + part(1)) + (part(2) + part(3));
    if (row == column) diagonal = __float_as_uint(element[s]);
  }
  const float largest = __uint_as_float(__reduce_max_sync(kFullWarp, diagonal));
#pragma unroll
  for (int s = 0; s < kOwn; ++s) {
    // A column beyond the rank is zero: any pivot will do.
    const int row = first_row + s * kSliceRows;
    if (row == column && row >= rank) element[s] = largest;
    whole[s] = element[s];
  }
  float own_inverse = 1.0f;  // of the pivot of the lane's column
#pragma unroll
  for (int k = 0; k < kColumns; ++k) {
    const int slice = k / kSliceRows;
    const int row_lane = k % kSliceRows * kColumns;
    const float inverse = inverse_square_root(__shfl_sync(kFullWarp, element[slice], row_lane + k));
    const float right = __shfl_sync(kFullWarp, element[slice], row_lane + column) * inverse;
    if (column == k) own_inverse = inverse;
#pragma unroll
    for (int s = 0; s < kOwn; ++s) {
      const float left = __shfl_sync(kFullWarp, element[s], first_row * kColumns + k) * inverse;
      if (column > k && first_row + s * kSliceRows > k) element[s] = fmaf(-left, right, element[s]);
    }
  }
  const float smallest = fmaxf(kClearNorm * largest, kSmallest);
  bool clear = largest < kLargest;
  bool good = true;
  bool orthogonal = true;
#pragma unroll
  for (int s = 0; s < kOwn; ++s) {
    const int row = first_row + s * kSliceRows;
    smem.cholesky[place.warp][row][column] = row == column ? own_inverse : element[s] * own_inverse;
    if (row != column) continue;
    clear = clear && element[s] >= fmaxf(kClearPivot * whole[s], smallest);
    good = good && element[s] >= kGoodPivot * whole[s];
    orthogonal = orthogonal && element[s] >= kOrthogonalPivot * whole[s];
  }
  __syncwarp();
  if (!__all_sync(kFullWarp, clear)) return Conditioning::kUnclear;
  if (!__all_sync(kFullWarp, good)) return Conditioning::kIndependent;
  return __all_sync(kFullWarp, orthogonal) ? Conditioning::kOrthogonal : Conditioning::kGood;
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
