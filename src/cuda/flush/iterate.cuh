// SPDX-License-Identifier: Apache-2.0
//
// Step 2: the new factors by one round of subspace iteration.
#pragma once

#include "cuda/flush/products.cuh"

namespace leapquant::cuda {

constexpr int kSecondGram = 0;  // its buffer

// The Gram matrix of columns to which the first L has been applied. Ends with a barrier.
template <int kColumns>
__device__ __forceinline__ void sum_gram_again(SharedStorage<kColumns>& smem, const Place& place,
                                               const ThinRow<kColumns>& row) {
  __syncwarp();  // the terms have been read
  write_terms(smem.operand.terms, place, row);
  __syncwarp();
  TermFragments<kColumns> x;
  TermFragments<kColumns> lo;
  load_terms<kColumns>(x, smem.operand.terms.hi_mid, place);
  load_terms<kColumns>(lo, smem.operand.terms.lo, place);
  TermGram<kColumns> gram = {};
  add_gram<kColumns>(gram, x, lo);
  write_gram(smem, place, gram, kSecondGram);
  __syncthreads();
}

// Step 2: the thread's rows of Q and U = S^T Q, from its row of q0. S P is taken as (S Z) L^-T with Z = P L^T, and U as
// (S^T Y) L^-T with Y = Q L^T, so that L is found beside the product; where that would not be accurate, the columns are
// made orthonormal first and the product is taken again.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void find_factors(SharedStorage<kColumns>& smem, const Place& place,
                                             const CodeFragments& codes, const CodeFragments& transposed, int rank,
                                             ThinRow<kColumns>& value_row, ThinRow<kColumns>& key_row) {
  const float key_scale = smem.code_scale[key_of_place(place.own)];
  const float value_scale = smem.value_scale[place.own];
  CholeskyFactor<kColumns> factor;
  (void)multiply_state<kDecay, kColumns, true>(smem, place, transposed, rank, true, kNoGram, value_row, value_scale,
                                               key_row, factor);
  Conditioning conditioning;
#pragma unroll 1
  for (bool settled = false;; settled = true) {
    conditioning = multiply_state<kDecay, kColumns, false>(smem, place, codes, rank, false, settled ? kNoGram : 0,
                                                           key_row, key_scale, value_row, factor);
    if (settled) break;
    if (conditioning >= Conditioning::kGood) {
      apply_cholesky<kColumns>(factor, value_row);
      break;
    }
    if (conditioning == Conditioning::kIndependent) {
      apply_cholesky<kColumns>(factor, key_row);
    } else {
      gram_schmidt(smem, place, rank, key_row);
    }
  }
#pragma unroll 1
  for (bool settled = false;; settled = true) {
    conditioning = multiply_state<kDecay, kColumns, true>(smem, place, transposed, rank, false, settled ? kNoGram : 1,
                                                          value_row, value_scale, key_row, factor);
    if (settled) return;
    if (conditioning >= Conditioning::kGood) break;
    if (conditioning == Conditioning::kIndependent) {
      apply_cholesky<kColumns>(factor, value_row);
      sum_gram_again(smem, place, value_row);
      (void)find_cholesky(smem, place, rank, kSecondGram, factor);
      apply_cholesky<kColumns>(factor, value_row);
    } else {
      gram_schmidt(smem, place, rank, value_row);
    }
  }
  apply_cholesky<kColumns>(factor, value_row);
  apply_cholesky<kColumns>(factor, key_row);
  if (conditioning == Conditioning::kOrthogonal) return;
  sum_gram_again(smem, place, value_row);
  find_small_cholesky(smem, place, kSecondGram, factor);
  apply_cholesky<kColumns>(factor, value_row);
  apply_cholesky<kColumns>(factor, key_row);
}

}  // namespace leapquant::cuda
