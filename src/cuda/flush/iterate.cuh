// SPDX-License-Identifier: Apache-2.0
//
// Step 2's products with the state, which is never formed: S = diag(s_v) C diag(c) + A B.
#pragma once

#include "cuda/flush/orthonormalize.cuh"

namespace leapquant::cuda {

// Byte offset of factor t's hi and mid in a row of a thin operand; its lo and zero are in the next chunk.
template <int kColumns>
__device__ __forceinline__ uint32_t thin_offset(uint32_t row, int group, int chunk) {
  constexpr int kRowBytes = Layout<kColumns>::kThinRowBytes;
  return swizzle<kRowBytes>(row * kRowBytes + (2 * group + chunk) * 16);
}

// Row `row` of a thin operand: x[r] times `scale`.
template <int kColumns>
__device__ __forceinline__ void write_operand(const void* operand, uint32_t row, const ThinRow<kColumns>& x,
                                              float scale) {
  const uint32_t target = shared_address(operand);
#pragma unroll
  for (int group = 0; group < kColumns / 4; ++group) {
    BfloatTerms terms[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) terms[i] = split_value(x[4 * group + i] * scale);
    store_shared(target + thin_offset<kColumns>(row, group, 0),
                 make_uint4(terms[0].hi_mid, terms[1].hi_mid, terms[2].hi_mid, terms[3].hi_mid));
    store_shared(target + thin_offset<kColumns>(row, group, 1),
                 make_uint4(terms[0].lo, terms[1].lo, terms[2].lo, terms[3].lo));
  }
}

// The operands of a product with the state, of which this is one row of x: scaled in operand[0], as it is in
// operand[1]. Ends with a barrier.
template <int kColumns>
__device__ __forceinline__ void publish_rows(SharedStorage<kColumns>& smem, const Place& place,
                                             const ThinRow<kColumns>& x, float scale) {
  write_operand<kColumns>(smem.operand[0], place.own, x, scale);
  write_operand<kColumns>(smem.operand[1], place.own, x, 1.0f);
  publish_operands();
}

// Accumulators of a 64-row tile of a product with a thin operand.
template <int kColumns>
using ThinAccumulator = float[2 * kColumns];

// The lane's factor 4 group + t of row 16 w + g (low) or 16 w + g + 8.
template <int kColumns>
__device__ __forceinline__ float joined(const ThinAccumulator<kColumns>& d, int group, int high) {
  return d[8 * group + 4 + 2 * high] + d[8 * group + 1 + 2 * high] + d[8 * group + 2 * high];
}

template <int kColumns>
__device__ __forceinline__ void write_inner(SharedStorage<kColumns>& smem, uint32_t row, int group, uint32_t t,
                                            float value) {
  const uint32_t target = shared_address(smem.inner) + 4 * t;
  const BfloatTerms terms = split_value(value);
  store_shared(target + thin_offset<kColumns>(row, group, 0), terms.hi_mid);
  store_shared(target + thin_offset<kColumns>(row, group, 1), terms.lo);
}

// A block of 16 window entries' results.
template <int kColumns>
__device__ __forceinline__ void write_inner_entries(SharedStorage<kColumns>& smem, const Place& place, uint32_t block,
                                                    const ThinAccumulator<kColumns>& d) {
#pragma unroll
  for (int group = 0; group < kColumns / 4; ++group) {
    write_inner(smem, 16 * block + place.g, group, place.t, joined<kColumns>(d, group, 0));
    write_inner(smem, 16 * block + place.g + 8, group, place.t, joined<kColumns>(d, group, 1));
  }
}

// A block of old factors' results, the sums of rows i, i + 4, ...: hi, hi, hi and lo of the value side (rows i and
// i + 12 make the whole), or hi, mid, lo and hi of the key side (the first three). They go where the other side's rows
// need them.
template <int kColumns, bool kFromValues>
__device__ __forceinline__ void write_inner_factors(SharedStorage<kColumns>& smem, const Place& place, uint32_t block,
                                                    const ThinAccumulator<kColumns>& d) {
  const bool upper = place.g >= 4;
#pragma unroll
  for (int group = 0; group < kColumns / 4; ++group) {
    const float low = joined<kColumns>(d, group, 0);
    const float high = joined<kColumns>(d, group, 1);
    const float own = kFromValues ? (upper ? high : low) : (upper ? low : high + low);
    const float sum = own + __shfl_xor_sync(kFullWarp, own, 16);
    // Key rows hi, mid, lo, hi want sum, sum, sum, 0; value rows hi, hi, hi, lo want sum, 0, 0, sum.
    const float second = kFromValues ? sum : 0.0f;
    const float fourth = kFromValues ? 0.0f : sum;
    write_inner(smem, 16 * block + place.g, group, place.t, upper ? second : sum);
    write_inner(smem, 16 * block + place.g + 8, group, place.t, upper ? fourth : second);
  }
}

// The accumulators' rows into rows of the thin matrix: the lane's own row. Rows belong to one warp, so no barrier.
template <int kColumns>
__device__ __forceinline__ void exchange_rows(SharedStorage<kColumns>& smem, const Place& place,
                                              const float (&value)[4][kColumns / 4], ThinRow<kColumns>& row) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int group = 0; group < kColumns / 4; ++group) {
      smem.thin[place.accumulator_row(i)][4 * group + place.t] = value[i][group];
    }
  }
  __syncwarp();
  load_row<kColumns>(smem.thin[place.own], row);
}

// kTransposed: the thread's row of S^T x = c (C^T (s_v x)) + B^T (A^T x); otherwise of S x = s_v (C (c x)) + A (B x).
// operand[0] holds the scaled x, operand[1] x itself, and x_row is the thread's row of it. While the products run, the
// Cholesky factor of x's Gram matrix is found. Operands may be written again at once.
template <int kColumns, bool kTransposed>
__device__ __forceinline__ void multiply_state(SharedStorage<kColumns>& smem, const Place& place,
                                               const CodeFragments& fragments, int rank, bool with_cholesky,
                                               const ThinRow<kColumns>& x_row, ThinRow<kColumns>& row,
                                               Cholesky<kColumns>& cholesky) {
  using L = Layout<kColumns>;
  constexpr int kSteps = kDim / 16;
  constexpr int kTermBlocks = 2;  // of window entries on the key side

  const Tiles<kColumns> tiles(smem);

  // A^T x or B x. The sides have fewer rows than the tile: what else it reads ends in rows that nobody reads.
  ThinAccumulator<kColumns> inner;
  ThinAccumulator<kColumns> codes[2];
  ThinAccumulator<kColumns> outer[2];
  begin_products();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const auto x = tiles.thin(smem.operand[1], step);
    if constexpr (kTransposed) {
      multiply(inner, tiles.rows(smem.value_side, 0, step), x, step > 0);
    } else {
      multiply(inner, tiles.rows(smem.key_side, 0, step), x, step > 0);
    }
  }
  commit_products();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      const auto x = tiles.thin(smem.operand[0], step);
      if constexpr (kTransposed) {
        multiply(codes[tile], tiles.columns(smem.codes, tile, step), x, step > 0);
      } else {
        multiply(codes[tile], fragments[tile][step], x, step > 0);
      }
    }
  }
  commit_products();
  if (with_cholesky) write_gram(smem, place, x_row);
  wait_for_products<1>();
  finish(inner);
  constexpr int kEntryBlocks = kTransposed ? 1 : kTermBlocks;
  if (place.warp < kEntryBlocks) {
    write_inner_entries<kColumns>(smem, place, place.warp, inner);
  } else if (place.warp < kEntryBlocks + L::kTiles) {
    write_inner_factors<kColumns, kTransposed>(smem, place, place.warp, inner);
  }
  wait_for_products<0>();
  finish(codes[0]);
  finish(codes[1]);
  publish_operands();
  begin_products();
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    // Entries: B's hi and mid times one block of sums, or A times the two blocks of B x.
#pragma unroll
    for (int block = 0; block < kTermBlocks + L::kTiles; ++block) {
      const int factors = block - kTermBlocks;
      if constexpr (kTransposed) {
        multiply(outer[tile], tiles.columns(smem.key_side, tile, block),
                 tiles.thin(smem.inner, factors < 0 ? 0 : 1 + factors), block > 0);
      } else {
        multiply(outer[tile], tiles.columns(smem.value_side, tile, factors < 0 ? 0 : 1 + factors),
                 tiles.thin(smem.inner, block), block > 0);
      }
    }
  }
  commit_products();
  if (with_cholesky) find_cholesky(smem, rank, cholesky);
  wait_for_products<0>();
  const float* const scales = kTransposed ? smem.code_scale : smem.value_scale;
  float value[4][L::kTiles];
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    finish(outer[tile]);
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const float scale = scales[place.accumulator_row(2 * tile + high)];
#pragma unroll
      for (int group = 0; group < L::kTiles; ++group) {
        value[2 * tile + high][group] =
            fmaf(joined<kColumns>(codes[tile], group, high), scale, joined<kColumns>(outer[tile], group, high));
      }
    }
  }
  exchange_rows<kColumns>(smem, place, value, row);
}

// Step 2: the thread's rows of Q and U = S^T Q, from its row of q0. S P is taken as (S Z) L^-T with Z = P L^T, and U as
// (S^T Y) L^-T with Y = Q L^T, so that L is found while the product runs; where that would not be accurate, the columns
// are made orthonormal first and the product is taken again.
template <int kColumns>
__device__ __forceinline__ void find_factors(SharedStorage<kColumns>& smem, const Place& place,
                                             const CodeFragments& codes, int rank, ThinRow<kColumns>& value_row,
                                             ThinRow<kColumns>& key_row) {
  Cholesky<kColumns> cholesky;
#pragma unroll 1
  for (int product = 0;; ++product) {
    publish_rows<kColumns>(smem, place, value_row, smem.value_scale[place.own]);
    multiply_state<kColumns, true>(smem, place, codes, rank, product == 1, value_row, key_row, cholesky);
    if (product == 1 && cholesky.conditioning >= Conditioning::kGood) break;
    if (product == 1) {
      gram_schmidt(smem, place, rank, value_row);
      continue;
    }
    if (product == 2) return;
#pragma unroll 1
    for (bool settled = false;; settled = true) {
      publish_rows<kColumns>(smem, place, key_row, smem.code_scale[place.own]);
      multiply_state<kColumns, false>(smem, place, codes, rank, !settled, key_row, value_row, cholesky);
      if (settled) break;
      if (cholesky.conditioning >= Conditioning::kGood) {
        cholesky.apply(value_row);
        break;
      }
      if (cholesky.conditioning == Conditioning::kIndependent) {
        cholesky.apply(key_row);
      } else {
        gram_schmidt(smem, place, rank, key_row);
      }
    }
  }
#pragma unroll 1
  for (;;) {
    cholesky.apply(value_row);
    cholesky.apply(key_row);
    if (cholesky.conditioning == Conditioning::kOrthogonal) break;
    __syncthreads();  // the Gram matrix has been read
    write_gram(smem, place, value_row);
    __syncthreads();
    find_cholesky(smem, rank, cholesky);
    cholesky.conditioning = Conditioning::kOrthogonal;
  }
}

}  // namespace leapquant::cuda
