// SPDX-License-Identifier: Apache-2.0
//
// Orthonormalization of a thin matrix, one row a thread: Cholesky QR, and Gram-Schmidt where that is not safe.
#pragma once

#include "cuda/flush/iterate.cuh"

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

// How the columns of a thin matrix depend on one another: nearly orthogonal after one pass, after two, or unclear.
enum class Conditioning { kOrthogonal, kIndependent, kUnclear };

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

// row = row L^-T, with L the Cholesky factor of the summed Gram matrix: uniform over the block, as every thread
// computes the same from the same numbers.
template <int kColumns>
__device__ __forceinline__ Conditioning apply_cholesky(const SharedStorage<kColumns>& smem, int rank,
                                                       ThinRow<kColumns>& row) {
  // Of a pivot, relative to its column: fp32 sums resolve it down to about 1e-6.
  constexpr float kClearPivot = 1e-5f;
  // Columns are orthonormal after one pass up to about 3e-7 by the smallest pivot, which must be far below what E is of
  // S: down to 1e-2 for a state that counts as not captured almost exactly.
  constexpr float kOrthogonalPivot = 4e-2f;
  // Of a pivot, relative to the largest column, squared: far above kDependentNorm of core/numerics.h, which is 4e-6.
  constexpr float kClearNorm = 1e-9f;
  // Squares that neither overflow nor lose what matters of their sum to underflow.
  constexpr float kSmallest = 1e-32f;
  constexpr float kLargest = 1e32f;
  float gram[kColumns][kColumns];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      const float4 part = *reinterpret_cast<const float4*>(smem.gram[i * (i + 1) / 2 + j]);
      gram[i][j] = (part.x + part.y) + (part.z + part.w);
    }
    largest = fmaxf(largest, gram[i][i]);
  }
  const float smallest = fmaxf(kClearNorm * largest, kSmallest);
  bool clear = largest < kLargest;
  bool orthogonal = true;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    // Row i of L in the place of row i of the Gram matrix. A column beyond the rank is zero: any pivot will do.
    if (i >= rank) gram[i][i] = largest;
    const float whole = gram[i][i];
#pragma unroll
    for (int j = 0; j < i; ++j) {
#pragma unroll
      for (int m = 0; m < j; ++m) gram[i][j] = fmaf(-gram[i][m], gram[j][m], gram[i][j]);
      gram[i][j] *= gram[j][j];  // the inverse of the pivot
    }
    float rest = whole;
#pragma unroll
    for (int m = 0; m < i; ++m) rest = fmaf(-gram[i][m], gram[i][m], rest);
    clear = clear && rest >= fmaxf(kClearPivot * whole, smallest);
    orthogonal = orthogonal && rest >= kOrthogonalPivot * whole;
    gram[i][i] = rsqrtf(rest);
  }
  if (!clear) return Conditioning::kUnclear;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int m = 0; m < i; ++m) row[i] = fmaf(-gram[i][m], row[m], row[i]);
    row[i] *= gram[i][i];
  }
  return orthogonal ? Conditioning::kOrthogonal : Conditioning::kIndependent;
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

// row = the thread's row of orth of the matrix, or of one that spans the same and is well conditioned where
// `most_passes` is 1; false where columns may depend on one another, and row is as it was.
template <int kColumns>
__device__ __forceinline__ bool cholesky_qr(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                            int most_passes, ThinRow<kColumns>& row) {
#pragma unroll 1
  for (int pass = 1;; ++pass) {
    write_gram(smem, place, row);
    __syncthreads();
    const Conditioning conditioning = apply_cholesky(smem, rank, row);
    if (conditioning == Conditioning::kUnclear) return pass > 1;
    if (conditioning == Conditioning::kOrthogonal || pass >= most_passes) return true;
    __syncthreads();  // the Gram matrix has been read
  }
}

// The same for any matrix.
template <int kColumns>
__device__ __forceinline__ void gram_schmidt(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                             ThinRow<kColumns>& row) {
  __syncthreads();  // smem.thin has been read
#pragma unroll
  for (int r = 0; r < kColumns; ++r) smem.thin[place.own][r] = row[r];
  __syncthreads();
  if (place.warp == 0) orthonormalize_columns(smem.thin, rank);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kColumns; ++r) row[r] = smem.thin[place.own][r];
}

// orth for columns that only have to be well conditioned, or for such that have to be orthonormal.
template <int kColumns>
__device__ __forceinline__ void orthonormalize(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                               int most_passes, ThinRow<kColumns>& row) {
  if (!cholesky_qr(smem, place, rank, most_passes, row)) gram_schmidt(smem, place, rank, row);
}

}  // namespace leapquant::cuda
