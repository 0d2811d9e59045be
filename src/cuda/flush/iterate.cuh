// SPDX-License-Identifier: Apache-2.0
//
// Step 2: the new factors by one round of subspace iteration.
#pragma once

#include "cuda/flush/products.cuh"

namespace leapquant::cuda {

// A second pass over columns to which the first L has been applied. Ends with the second L in place of the first.
template <int kColumns>
__device__ __forceinline__ void orthonormalize_again(SharedStorage<kColumns>& smem, const Place& place, int rank,
                                                     ThinRow<kColumns>& row) {
  constexpr int kBuffer = 0;
  __syncwarp();  // the first L and the terms have been read
  write_terms(smem, place, row);
  __syncwarp();
  TermFragments<kColumns> x;
  TermFragments<kColumns> lo;
  load_terms<kColumns>(x, smem.operand.terms, place);
  load_terms<kColumns>(lo, smem.operand.lo, place);
  TermGram<kColumns> gram = {};
  add_gram<kColumns>(gram, x, lo);
  write_gram(smem, place, gram, kBuffer);
  __syncthreads();
  (void)find_cholesky(smem, place, rank, kBuffer);
  apply_cholesky(smem, place, row);
}

// Step 2: the thread's rows of Q and U = S^T Q, from its row of q0. S P is taken as (S Z) L^-T with Z = P L^T, and U as
// (S^T Y) L^-T with Y = Q L^T, so that L is found beside the product; where that would not be accurate, the columns are
// made orthonormal first and the product is taken again.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void find_factors(SharedStorage<kColumns>& smem, const Place& place,
                                             const CodeFragments& transposed, int rank, ThinRow<kColumns>& value_row,
                                             ThinRow<kColumns>& key_row) {
  const float key_scale = smem.code_scale[key_of_place(place.own)];
  Conditioning conditioning;
#pragma unroll 1
  for (int product = 0;; ++product) {
    conditioning = multiply_state<kDecay, kColumns, true>(smem, place, transposed, rank, product == 1 ? 1 : kNoGram,
                                                          value_row, smem.value_scale[place.own], key_row);
    if (product == 2) return;
    if (product == 1) {
      if (conditioning >= Conditioning::kGood) break;
      if (conditioning == Conditioning::kIndependent) {
        apply_cholesky(smem, place, value_row);
        orthonormalize_again(smem, place, rank, value_row);
      } else {
        gram_schmidt(smem, place, rank, value_row);
      }
      continue;
    }
#pragma unroll 1
    for (bool settled = false;; settled = true) {
      conditioning = multiply_state<kDecay, kColumns, false>(smem, place, transposed, rank, settled ? kNoGram : 0,
                                                             key_row, key_scale, value_row);
      if (settled) break;
      if (conditioning >= Conditioning::kGood) {
        apply_cholesky(smem, place, value_row);
        break;
      }
      if (conditioning == Conditioning::kIndependent) {
        apply_cholesky(smem, place, key_row);
      } else {
        gram_schmidt(smem, place, rank, key_row);
      }
    }
  }
  apply_cholesky(smem, place, value_row);
  apply_cholesky(smem, place, key_row);
  if (conditioning == Conditioning::kOrthogonal) return;
  orthonormalize_again(smem, place, rank, value_row);
  apply_cholesky(smem, place, key_row);
}

}  // namespace leapquant::cuda
