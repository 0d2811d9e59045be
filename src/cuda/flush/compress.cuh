// SPDX-License-Identifier: Apache-2.0
//
// Step 3: the residual E, its scales and its codes.
#pragma once

#include "cuda/common/residual.cuh"
#include "cuda/flush/iterate.cuh"

namespace leapquant::cuda {

// E as accumulators: [64-row tile][column tile]; e[tile][4 j + 2 high + i] is place 8 j + 2 t + i of row
// 64 tile + 16 w + 8 high + g.
using Residual = float[2][64];

// Rounds one row of factors to halves, for the last product and for the checkpoint.
template <int kColumns>
__device__ __forceinline__ void store_factors(const ThinRow<kColumns>& x, uint32_t signs, uint16_t (&row)[8],
                                              char* target, int64_t row_stride, uint32_t channel, int rank) {
  uint32_t packed[4] = {};
  target += 2 * channel;
#pragma unroll
  for (int r = 0; r < kColumns; r += 2) {
    const uint32_t pair = saturate_to_halves(x[r], x[r + 1]);
    if (r < rank) *reinterpret_cast<uint16_t*>(target) = static_cast<uint16_t>(pair);
    target += row_stride;
    if (r + 1 < rank) *reinterpret_cast<uint16_t*>(target) = static_cast<uint16_t>(pair >> 16);
    target += row_stride;
    packed[r / 2] = pair ^ signs;
  }
  *reinterpret_cast<uint4*>(row) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

// diag(s_v) C diag(c): the codes as halves, with c as two diagonal tiles, hi and mid.
template <int kColumns>
__device__ __forceinline__ void start_residual(const SharedStorage<kColumns>& smem, const Place& place,
                                               const CodeFragments& codes, uint32_t exponents, Residual& e) {
  constexpr uint32_t kSigns = 0x80808080u;
  // The lane's inner indices 2 t, 2 t + 1 of a diagonal tile meet its column g in one of the two, or in none.
  const uint32_t column = place.g / 2 == place.t ? place.g : DiagonalTile::kBeside;
  const uint32_t diagonal = shared_address(&smem.diagonal[0].words[column]);
  const float unit = power_inverse(scale_power(smem));
  float scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) scale[i] = smem.value_scale[place.accumulator_row(i)] * unit;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    CodeFragment unsigned_codes[2];  // code + 128
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) unsigned_codes[tile][i] = codes[tile][step][i] ^ kSigns;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int chunk = 4 * half + step;
      const auto column_tile = [&](int odd, auto convert) {
        const uint2 terms = load_shared8(diagonal + (2 * chunk + odd) * sizeof(DiagonalTile));
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          const uint32_t low = convert(unsigned_codes[tile][2 * half]);
          const uint32_t high = convert(unsigned_codes[tile][2 * half + 1]);
          float* const c = &e[tile][4 * (2 * chunk + odd)];
          multiply_half_first(c, low, high, low, high, terms.x, terms.y);
          c[0] *= scale[2 * tile];
          c[1] *= scale[2 * tile];
          c[2] *= scale[2 * tile + 1];
          c[3] *= scale[2 * tile + 1];
        }
      };
      column_tile(0, [=](uint32_t word) { return codes_to_halves<0x4240>(word, exponents); });
      column_tile(1, [=](uint32_t word) { return codes_to_halves<0x4341>(word, exponents); });
    }
  }
}

// E -= q' u', exactly multiplied.
template <int kColumns>
__device__ __forceinline__ void subtract_factors(SharedStorage<kColumns>& smem, const Place& place, Residual& e) {
  const NewFactors& factors = smem.factors;
  uint32_t value[4];  // rows of tile 0, then of tile 1
  load_matrices(value, shared_address(factors.value[16 * place.warp + place.lane % 16 + place.lane / 16 * 64]));
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    uint32_t key[4];
    load_matrices(key, shared_address(factors.key[32 * part + place.lane]));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        multiply_half(&e[tile][4 * (4 * part + i)], value[2 * tile], value[2 * tile + 1], key[i]);
      }
    }
  }
}

// E += A B. Two terms of a window key do here: what they lack is far below a code of E. It is the new factors, which
// are rounded to halves, that the last bits can turn.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void add_window(const SharedStorage<kColumns>& smem, Residual& e) {
  const Tiles<kColumns> tiles(smem);
  begin_products();
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int term = 0; term < 2; ++term) {
      multiply(e[tile], tiles.columns(smem.value_side, tile, 0),
               tiles.columns(smem.key_side, 0, kFirstResidualTerm<kDecay> + term));
    }
#pragma unroll
    for (int group = 0; group < Layout<kColumns>::kTiles; ++group) {
      multiply(e[tile], tiles.columns(smem.value_side, tile, 1 + group),
               tiles.columns(smem.key_side, 0, kKeyTerms + group));
    }
  }
  wait_for_products();
  finish(e[0]);
  finish(e[1]);
}

// The warp's sums of abs E over its rows, by key: every lane leaves those of its own four rows where the warp's codes
// were, and takes four keys' of all.
template <int kColumns>
__device__ __forceinline__ void write_column_parts(SharedStorage<kColumns>& smem, const Place& place,
                                                   const Residual& e) {
  // Rows of 32 times four keys, four in each of the places of the warp's codes. In odd rows, fours of them have changed
  // places in pairs.
  constexpr uint32_t kRow = 512;
  constexpr uint32_t kFours = 4 * 16;
  const uint32_t rows = shared_address(smem.codes[16 * place.warp]);
  const auto row_of = [&](uint32_t g) { return rows + g / 4 * (64 * kDim) + g % 4 * kRow; };
  const uint32_t even_chunk = row_of(place.g) + place.g % 2 * kFours + place.t * 16;
  const uint32_t odd_chunk = even_chunk ^ kFours;
  __syncwarp();  // the codes have been read
#pragma unroll
  for (int chunk = 0; chunk < 8; ++chunk) {
    const auto sum = [&](int i) {
      const float* const low = &e[0][8 * chunk + i];
      const float* const high = &e[1][8 * chunk + i];
      return __float_as_uint((fabsf(low[0]) + fabsf(low[2])) + (fabsf(high[0]) + fabsf(high[2])));
    };
    store_shared((chunk % 2 == 0 ? even_chunk : odd_chunk) + chunk / 2 * 2 * kFours,
                 make_uint4(sum(0), sum(4), sum(1), sum(5)));
  }
  __syncwarp();
  float total[4] = {};
  const uint32_t even_row = place.lane * 16;
  const uint32_t odd_row = even_row ^ kFours;
#pragma unroll
  for (uint32_t g = 0; g < 8; ++g) {
    const uint4 part = load_shared16(row_of(g) + (g % 2 == 0 ? even_row : odd_row));
    total[0] += __uint_as_float(part.x);
    total[1] += __uint_as_float(part.y);
    total[2] += __uint_as_float(part.z);
    total[3] += __uint_as_float(part.w);
  }
  *reinterpret_cast<float4*>(&smem.column_part[place.warp][4 * place.lane]) =
      make_float4(total[0], total[1], total[2], total[3]);
}

// s_k' of the thread's column, and whether the state was finite there.
template <int kColumns>
__device__ __forceinline__ void finish_columns(SharedStorage<kColumns>& smem, uint32_t column, char* key_scales) {
  const float sum = (smem.column_part[0][column] + smem.column_part[1][column]) +
                    (smem.column_part[2][column] + smem.column_part[3][column]);
  if (!is_finite_sum(sum)) smem.non_finite = 1;
  const float key_scale = key_scale_of(sum);
  reinterpret_cast<float*>(key_scales)[column] = key_scale;
  smem.key_inverse[column] = divide(1.0f, key_scale);
}

// E / s_k', and from its rows' maxima s_v'; returns 127 / s_v' of the four rows.
template <int kColumns>
__device__ __forceinline__ void scale_rows(const SharedStorage<kColumns>& smem, const Place& place, char* value_scales,
                                           Residual& e, float (&code_factor)[4]) {
  float largest[4] = {};
  const uint32_t inverses = shared_address(&smem.key_inverse[4 * place.t]);
#pragma unroll
  for (int j = 0; j < 16; j += 2) {
    // In two: a load of 16 bytes takes four turns, though lanes share addresses.
    const uint32_t address = inverses + 8 * j * sizeof(float);
    const float2 even = load_shared_pair(address);
    const float2 odd = load_shared_pair(address + 2 * sizeof(float));
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      float* const pair = &e[row / 2][4 * j + 2 * (row % 2)];
      pair[0] *= even.x;
      pair[4] *= even.y;
      pair[1] *= odd.x;
      pair[5] *= odd.y;
      largest[row] = fmaxf(fmaxf(largest[row], fabsf(pair[0])), fabsf(pair[1]));
      largest[row] = fmaxf(fmaxf(largest[row], fabsf(pair[4])), fabsf(pair[5]));
    }
  }
#pragma unroll
  for (int row = 0; row < 4; ++row) {
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(kFullWarp, largest[row], 1));
    largest[row] = fmaxf(largest[row], __shfl_xor_sync(kFullWarp, largest[row], 2));
  }
  const float low = place.t % 2 == 0 ? largest[0] : largest[1];
  const float high = place.t % 2 == 0 ? largest[2] : largest[3];
  const float value_scale = value_scale_of(place.t < 2 ? low : high);
  reinterpret_cast<float*>(value_scales)[place.accumulator_row(place.t)] = value_scale;
  const float own_factor = code_factor_of(value_scale);
#pragma unroll
  for (int row = 0; row < 4; ++row) code_factor[row] = __shfl_sync(kFullWarp, own_factor, row, 4);
}

// codes' = round(127 E / (s_k' s_v')). The lane's four of every 16 keys go through shared memory, whence whole rows
// are stored.
template <int kColumns>
__device__ __forceinline__ void store_codes(SharedStorage<kColumns>& smem, const Residual& e, const Place& place,
                                            const float (&code_factor)[4], char* codes) {
  constexpr uint32_t kTileBytes = 16 * kDim;  // of a warp
  const uint32_t staged = shared_address(smem.key_side) + place.warp * kTileBytes;
  static_assert(kWarps * kTileBytes <= sizeof(smem.key_side));
  const uint32_t matrices = staged + code_offset(place.lane % 16, place.lane / 16);
  // Of 16 bytes of a row out of four, in order; those of the next four rows have their chunks exchanged.
  const uint32_t source = staged + code_offset(place.lane / 8, place.lane % 8);
  const uint32_t later_source = source ^ 4 << 4;
  char* const target = codes + 16 * kDim * place.warp + 16 * place.lane;
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    if (tile > 0) __syncwarp();  // the first one has been read
#pragma unroll
    for (int chunk = 0; chunk < 8; chunk += 2) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const first = &e[tile][8 * (chunk + i / 2) + 2 * (i % 2)];
        word[i] = codes_of(first[0], first[4], first[1], first[5], code_factor[2 * tile + i % 2]);
      }
      store_matrices(word, matrices ^ chunk << 4);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t row = (i % 2 == 0 ? source : later_source) + 4 * i * kDim;
      *reinterpret_cast<uint4*>(target + (64 * tile + 4 * i) * kDim) = load_shared16(row);
    }
  }
}

}  // namespace leapquant::cuda
