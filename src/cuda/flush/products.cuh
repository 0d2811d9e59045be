// SPDX-License-Identifier: Apache-2.0
//
// The products of step 2 with the state, which is never formed: S = diag(s_v) C diag(c) + A B. A product S x has two
// parts:
//
//   s_v (C (c x))   of bytes, exactly: c x as integers of 23 bits under a power of two, three digits each
//   A (B x)         of bfloats, x and B x as three of them
//
// and takes three phases with a barrier after each of the first two: every warp sums B x over its own channels; x
// becomes digits, and the warps' sums are added up; the products. S^T x likewise, with sides and scales exchanged.
#pragma once

#include "cuda/flush/orthonormalize.cuh"

namespace leapquant::cuda {

// ---- thin operands --------------------------------------------------------------------------------------------------

// The lane's row of x as bfloats.
template <int kColumns>
__device__ __forceinline__ void write_terms(ThinTerms<kColumns>& target, const Place& place,
                                            const ThinRow<kColumns>& x) {
#pragma unroll
  for (int group = 0; group < kColumns / 4; ++group) {
    BfloatTerms terms[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) terms[i] = split_value(x[4 * group + i]);
    store_shared(shared_address(target.hi_mid[group][place.thread]),
                 make_uint4(terms[0].hi_mid, terms[1].hi_mid, terms[2].hi_mid, terms[3].hi_mid));
    store_shared(shared_address(target.lo[group][place.thread]),
                 make_uint4(terms[0].lo, terms[1].lo, terms[2].lo, terms[3].lo));
  }
}

// The warp's 32 rows of such a matrix as right operands, 16 after the other.
template <int kColumns>
using TermFragments = uint32_t[Layout<kColumns>::kTiles][4];

template <int kColumns>
__device__ __forceinline__ void load_terms(TermFragments<kColumns>& b,
                                           const uint16_t (&terms)[Layout<kColumns>::kTiles][kDim][8],
                                           const Place& place) {
#pragma unroll
  for (int group = 0; group < Layout<kColumns>::kTiles; ++group) {
    load_transposed(b[group], shared_address(terms[group][place.thread]));
  }
}

// Sums of products with a group's terms, of rows g and g + 8: of the lane's factor t hi and lo, then mid.
using TermSums = float[4];

__device__ __forceinline__ void multiply_terms(TermSums& d, const uint32_t (&a)[4], const uint32_t* b) {
  multiply_bfloat(d, a[0], a[1], a[2], a[3], b[0], b[1]);
}
// ... of all three terms.
__device__ __forceinline__ void multiply_terms(TermSums& d, const uint32_t (&a)[4], const uint32_t* hi_mid,
                                               const uint32_t* lo) {
  multiply_terms(d, a, hi_mid);
  multiply_terms(d, a, lo);
}
__device__ __forceinline__ float joined(const TermSums& d, int high) { return d[1 + 2 * high] + d[2 * high]; }

// ---- first phase: sums over the warp's channels ---------------------------------------------------------------------

// The largest of abs x among the warp's rows.
template <int kColumns>
__device__ __forceinline__ void write_largest(SharedStorage<kColumns>& smem, const Place& place,
                                              const ThinRow<kColumns>& x) {
  float own = 0;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) own = fmaxf(own, fabsf(x[r]));
  const uint32_t largest = __reduce_max_sync(kFullWarp, __float_as_uint(own));
  if (place.lane == 0) smem.largest[place.warp] = __uint_as_float(largest);
}

// Gram matrices of the terms of two groups of four columns: of hi and mid, and of lo beside them.
template <int kColumns>
using TermGram = TermSums[Layout<kColumns>::kTiles][Layout<kColumns>::kTiles][2];

// Adds the warp's rows. As a left operand their fragments are the same matrices in another order.
template <int kColumns>
__device__ __forceinline__ void add_gram(TermGram<kColumns>& gram, const TermFragments<kColumns>& x,
                                         const TermFragments<kColumns>& lo) {
#pragma unroll
  for (int half = 0; half < 4; half += 2) {
#pragma unroll
    for (int i = 0; i < Layout<kColumns>::kTiles; ++i) {
      const uint32_t left[4] = {x[i][half], lo[i][half], x[i][half + 1], lo[i][half + 1]};
#pragma unroll
      for (int j = 0; j < Layout<kColumns>::kTiles; ++j) {
        multiply_terms(gram[i][j][0], left, &x[j][half]);
        multiply_terms(gram[i][j][1], left, &lo[j][half]);
      }
    }
  }
}

// The warp's part of the Gram matrix: rows g and g + 8 of its terms' are hi and lo of column g / 2, or mid and nothing;
// as is what is odd among columns of lo.
template <int kColumns>
__device__ __forceinline__ void write_gram(SharedStorage<kColumns>& smem, const Place& place,
                                           const TermGram<kColumns>& gram, int buffer) {
#pragma unroll
  for (int i = 0; i < Layout<kColumns>::kTiles; ++i) {
#pragma unroll
    for (int j = 0; j < Layout<kColumns>::kTiles; ++j) {
      const auto sum_of_row = [&](int high) { return gram[i][j][1][2 * high] + joined(gram[i][j][0], high); };
      float sum = sum_of_row(1) + sum_of_row(0);
      sum += __shfl_xor_sync(kFullWarp, sum, 4);
      if (place.g % 2 == 0) smem.gram[buffer][place.warp][4 * i + place.g / 2][4 * j + place.t] = sum;
    }
  }
}

// The rows of A^T or of B.
template <bool kValues, int kColumns>
__device__ __forceinline__ const auto& side_of(const SharedStorage<kColumns>& smem) {
  if constexpr (kValues) {
    return smem.value_side;
  } else {
    return smem.key_side;
  }
}

// Fragments of 16 rows of a side and of the 16 channels of a half that are the warp's, as the left operand: rows are
// the side's.
template <int kRows>
__device__ __forceinline__ void load_side(uint32_t (&a)[4], const uint16_t (&side)[2][kRows][64], const Place& place,
                                          int block, int half) {
  const uint32_t row = 16 * block + place.lane % 16;
  const uint32_t chunk = 2 * place.warp + place.lane / 16;
  load_matrices(a, shared_address(side[half]) + row * 128 + ((chunk ^ (row & 7)) << 4));
}
// ... rows are the channels.
template <int kRows>
__device__ __forceinline__ void load_side_transposed(uint32_t (&a)[4], const uint16_t (&side)[2][kRows][64],
                                                     const Place& place, int block, int half) {
  const uint32_t row = 16 * block + place.lane % 8 + place.lane / 16 * 8;
  const uint32_t chunk = 2 * place.warp + place.lane / 8 % 2;
  load_transposed(a, shared_address(side[half]) + row * 128 + ((chunk ^ (row & 7)) << 4));
}

// The sums of a block of old factors' rows i, i + 4, ...: hi, hi, hi and lo of the value side (rows i and i + 12 make
// the whole), or hi, mid, lo and hi of the key side (the first three).
template <bool kFromValues>
__device__ __forceinline__ float factor_sum(const TermSums& d, const Place& place) {
  const bool upper = place.g >= 4;
  const float low = joined(d, 0);
  const float high = joined(d, 1);
  const float own = kFromValues ? (upper ? high : low) : (upper ? low : high + low);
  return own + __shfl_xor_sync(kFullWarp, own, 16);
}

constexpr int kNoGram = -1;

// A^T x (values) or B x over the warp's channels, whose rows of x are the lanes', and the warp's part of the Gram
// matrix of x into `gram_buffer`, if there is one.
template <Decay kDecay, int kColumns, bool kFromValues>
__device__ __forceinline__ void sum_own_channels(SharedStorage<kColumns>& smem, const Place& place,
                                                 const ThinTerms<kColumns>& x, int gram_buffer) {
  constexpr int kTiles = Layout<kColumns>::kTiles;
  constexpr int kWindowBlocks = kFromValues ? 1 : kIteratedTerms<kDecay>;
  TermSums window[kTiles] = {};
  TermSums factors[kTiles][kTiles] = {};  // [block][group]
  TermGram<kColumns> gram = {};
  const auto& side = side_of<kFromValues>(smem);
  TermFragments<kColumns> b;
  TermFragments<kColumns> lo;
  load_terms<kColumns>(b, x.hi_mid, place);
  load_terms<kColumns>(lo, x.lo, place);
  if (gram_buffer != kNoGram) add_gram<kColumns>(gram, b, lo);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t a[4];
#pragma unroll
    for (int block = 0; block < kWindowBlocks; ++block) {
      load_side(a, side, place, block, half);
#pragma unroll
      for (int group = 0; group < kTiles; ++group) {
        multiply_terms(window[group], a, &b[group][2 * half], &lo[group][2 * half]);
      }
    }
#pragma unroll
    for (int block = 0; block < kTiles; ++block) {
      load_side(a, side, place, (kFromValues ? 1 : kKeyTerms) + block, half);
#pragma unroll
      for (int group = 0; group < kTiles; ++group) {
        multiply_terms(factors[block][group], a, &b[group][2 * half], &lo[group][2 * half]);
      }
    }
  }
  if (gram_buffer != kNoGram) write_gram(smem, place, gram, gram_buffer);
  float(*const partial)[kColumns] = smem.partial[place.warp];
#pragma unroll
  for (int group = 0; group < kTiles; ++group) {
    const uint32_t column = 4 * group + place.t;
    partial[place.g][column] = joined(window[group], 0);
    partial[place.g + 8][column] = joined(window[group], 1);
#pragma unroll
    for (int block = 0; block < kTiles; ++block) {
      const float sum = factor_sum<kFromValues>(factors[block][group], place);
      if (place.g < 4) partial[kEntries + 4 * block + place.g][column] = sum;
    }
  }
}

// ---- second phase: operands of all warps ----------------------------------------------------------------------------

// The power of two of scaled x. One serves all columns: they differ by what the conditioning of S and the pivots of
// find_cholesky() allow, and a column needs twelve bits.
template <int kColumns>
__device__ __forceinline__ float load_power(const SharedStorage<kColumns>& smem) {
  const float4 largest = *reinterpret_cast<const float4*>(smem.largest);
  return power_to_one(fmaxf(fmaxf(largest.x, largest.y), fmaxf(largest.z, largest.w)));
}

constexpr float kDigitUnits = 2097152.0f;  // 2^21: the largest is between this and twice as much

// The lane's row of scaled x as integers n: n + 1.5 * 2^23 as a float, whose last bits are n.
template <int kColumns>
__device__ __forceinline__ void write_words(SharedStorage<kColumns>& smem, const Place& place,
                                            const ThinRow<kColumns>& x, float power) {
  constexpr float kRounder = 12582912.0f;
  const uint32_t r = place.lane % 16;
  const uint32_t position = (place.lane & 16) | (r & 6) << 1 | (r & 1) << 1 | r >> 3;  // see load_transposed_codes()
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    smem.word[place.warp][i][position] = __float_as_uint(fmaf(x[i] * power, kDigitUnits, kRounder));
  }
}

// Four neighbours of a column as four bytes of each digit, of which the last one has the sign.
template <int kColumns>
__device__ __forceinline__ void write_digits(SharedStorage<kColumns>& smem, const Place& place) {
  const uint32_t factor = place.lane / 8;
  const uint32_t first = place.lane % 8 * 4;
#pragma unroll
  for (int group = 0; group < kColumns / 4; ++group) {
    const uint4 n = load_shared16(shared_address(&smem.word[place.warp][4 * group + factor][first]));
    const uint32_t low01 = __byte_perm(n.x, n.y, 0x5140);
    const uint32_t low23 = __byte_perm(n.z, n.w, 0x5140);
    const uint32_t high = __byte_perm(__byte_perm(n.x, n.y, 0x0062), __byte_perm(n.z, n.w, 0x0062), 0x5410);
    const uint32_t target = shared_address(smem.operand.digits[16 * group + 2 * factor]) + 32 * place.warp + first;
    store_shared(target, __byte_perm(low01, low23, 0x5410));
    store_shared(target + kDigitPitch, __byte_perm(low01, low23, 0x7632));
    // Digits above 64: 0 ... 127 to -64 ... 63, in each byte.
    store_shared(target + 8 * kDigitPitch, (high + 0x40404040u) ^ 0x80808080u);
  }
}

// The sums over all channels as an operand. Rows of old factors are those that the other side's want: key rows hi, mid,
// lo, hi the sum, the sum, the sum and 0, value rows hi, hi, hi, lo the sum, 0, 0 and the sum.
template <Decay kDecay, int kColumns, bool kFromValues>
__device__ __forceinline__ void write_inner(SharedStorage<kColumns>& smem, const Place& place) {
#pragma unroll
  for (int i = 0; i < Layout<kColumns>::kInnerRows * kColumns / kThreads; ++i) {
    const uint32_t number = place.thread + i * kThreads;
    const uint32_t row = number / kColumns;
    const uint32_t column = number % kColumns;
    const uint32_t of_block = row % 16;
    const bool entry = row < kEntries;
    const uint32_t source = entry ? row : kEntries + 4 * (row / 16 - 1) + of_block % 4;
    float sum = (smem.partial[0][source][column] + smem.partial[1][source][column]) +
                (smem.partial[2][source][column] + smem.partial[3][source][column]);
    if (kDecay == Decay::kByHead && entry) sum *= smem.window_weight[row_of_entry(row)];  // an entry's row, and back
    const bool wanted = entry || (kFromValues ? of_block < 12 : of_block < 4 || of_block >= 12);
    const BfloatTerms terms = split_value(wanted ? sum : 0.0f);
    store_shared(shared_address(&smem.operand.inner[0][column / 4][row][column % 4 * 2]), terms.hi_mid);
    store_shared(shared_address(&smem.operand.inner[1][column / 4][row][column % 4 * 2]), terms.lo);
  }
}

// ---- third phase: the products --------------------------------------------------------------------------------------

// Sums of products with a group's digits: first and second of the lane's factor t, then third, of rows g and g + 8.
using DigitSums = int32_t[8];

// Of units of 1 / (kDigitUnits * power).
__device__ __forceinline__ float joined(const DigitSums& d, int high) {
  const int32_t low = d[2 * high] + (d[1 + 2 * high] << 8);
  return fmaf(static_cast<float>(d[4 + 2 * high]), 65536.0f, static_cast<float>(low));
}

template <int kColumns>
__device__ __forceinline__ void multiply_codes(const SharedStorage<kColumns>& smem, const Place& place,
                                               const CodeFragments& codes,
                                               DigitSums (&sums)[2][Layout<kColumns>::kTiles]) {
  const uint32_t row = place.lane % 8 + place.lane / 16 * 8;
  const uint32_t source = shared_address(smem.operand.digits[row]) + place.lane / 8 % 2 * 16;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
#pragma unroll
    for (int group = 0; group < Layout<kColumns>::kTiles; ++group) {
      uint32_t b[4];
      load_matrices(b, source + 16 * group * kDigitPitch + 32 * step);
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const CodeFragment& a = codes[tile][step];
        multiply_unsigned_bytes(&sums[tile][group][0], a[0], a[1], a[2], a[3], b[0], b[1]);
        multiply_bytes(&sums[tile][group][4], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
}

// B^T times A^T x, or A times B x: entries, of which B has terms, then factors.
template <Decay kDecay, int kColumns, bool kTransposed>
__device__ __forceinline__ void multiply_inner(const SharedStorage<kColumns>& smem, const Place& place,
                                               TermSums (&sums)[2][Layout<kColumns>::kTiles]) {
  constexpr int kTiles = Layout<kColumns>::kTiles;
  constexpr int kWindowBlocks = kTransposed ? kIteratedTerms<kDecay> : 1;
  constexpr int kFactorBlock = kTransposed ? kKeyTerms : 1;
  constexpr int kBlocks = 1 + kTiles;
  static_assert(kBlocks == Layout<kColumns>::kValueBlocks && kTiles * kBlocks % 2 == 0);
  uint32_t b[kTiles * kBlocks][4];  // two matrices for each group and block of hi and mid; then of lo
#pragma unroll
  for (int i = 0; i < kTiles * kBlocks; ++i) {
    load_transposed(b[i], shared_address(smem.operand.inner) + (32 * i + place.lane) * 16);
  }
#pragma unroll
  for (int inner = 0; inner < kBlocks; ++inner) {
    const int first = inner == 0 ? 0 : kFactorBlock + inner - 1;
    const int end = inner == 0 ? kWindowBlocks : first + 1;
#pragma unroll
    for (int block = first; block < end; ++block) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        uint32_t a[4];
        load_side_transposed(a, side_of<!kTransposed>(smem), place, block, tile);
#pragma unroll
        for (int group = 0; group < kTiles; ++group) {
          const int number = group * kBlocks + inner;
          const int of_pair = number % 2 * 2;
          multiply_terms(sums[tile][group], a, &b[number / 2][of_pair], &b[(kTiles * kBlocks + number) / 2][of_pair]);
        }
      }
    }
  }
}

// The scales of the lane's accumulator rows: of keys, or of value channels.
template <int kColumns, bool kKeys>
__device__ __forceinline__ void load_row_scales(const SharedStorage<kColumns>& smem, const Place& place,
                                                float (&scale)[4]) {
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    if constexpr (kKeys) {
      const float2 both = *reinterpret_cast<const float2*>(&smem.code_scale[64 * tile + 16 * place.warp + 2 * place.g]);
      scale[2 * tile] = both.x;
      scale[2 * tile + 1] = both.y;
    } else {
      scale[2 * tile] = smem.value_scale[place.accumulator_row(2 * tile)];
      scale[2 * tile + 1] = smem.value_scale[place.accumulator_row(2 * tile + 1)];
    }
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
      smem.thin[32 * place.warp + 8 * i + place.g][4 * group + place.t] = value[i][group];
    }
  }
  __syncwarp();
  load_row<kColumns>(smem.thin[place.thread], row);
}

// kTransposed: the thread's row of S^T x = c (C^T (s_v x)) + B^T (A^T x); otherwise of S x = s_v (C (c x)) + A (B x).
// `codes` are the fragments of C^T or of C, x_row is the thread's row of x, of which the start basis has its terms, and
// `scale` what scales it. With a Gram buffer, the Cholesky factor of x's Gram matrix is found beside the products; the
// same in all threads.
template <Decay kDecay, int kColumns, bool kTransposed>
__device__ __forceinline__ Conditioning multiply_state(SharedStorage<kColumns>& smem, const Place& place,
                                                       const CodeFragments& codes, int rank, bool of_start,
                                                       int gram_buffer, const ThinRow<kColumns>& x_row, float scale,
                                                       ThinRow<kColumns>& row, CholeskyFactor<kColumns>& factor) {
  constexpr int kTiles = Layout<kColumns>::kTiles;
  float power;
  {
    ThinRow<kColumns> scaled;
#pragma unroll
    for (int r = 0; r < kColumns; ++r) scaled[r] = x_row[r] * scale;
    write_largest(smem, place, scaled);
    if (!of_start) {
      write_terms(smem.operand.terms, place, x_row);
      __syncwarp();
    }
    sum_own_channels<kDecay, kColumns, kTransposed>(smem, place, of_start ? smem.start_terms : smem.operand.terms,
                                                    gram_buffer);
    __syncthreads();
    power = load_power(smem);
    write_words(smem, place, scaled, power);
  }
  write_inner<kDecay, kColumns, kTransposed>(smem, place);
  __syncwarp();
  write_digits(smem, place);
  __syncthreads();
  Conditioning conditioning = Conditioning::kUnclear;
  if (gram_buffer != kNoGram) conditioning = find_cholesky(smem, place, rank, gram_buffer, factor);
  DigitSums code_sums[2][kTiles] = {};
  TermSums inner_sums[2][kTiles] = {};
  multiply_codes<kColumns>(smem, place, codes, code_sums);
  multiply_inner<kDecay, kColumns, kTransposed>(smem, place, inner_sums);
  float row_scale[4];
  load_row_scales<kColumns, kTransposed>(smem, place, row_scale);
  const float unit = power_inverse(power) * (1.0f / kDigitUnits);
  float value[4][kTiles];
#pragma unroll
  for (int group = 0; group < kTiles; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      value[i][group] =
          fmaf(joined(code_sums[i / 2][group], i % 2) * unit, row_scale[i], joined(inner_sums[i / 2][group], i % 2));
    }
  }
  exchange_rows<kColumns>(smem, place, value, row);
  return conditioning;
}

}  // namespace leapquant::cuda
