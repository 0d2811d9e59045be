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
__device__ __forceinline__ void store_factors(const ThinRow<kColumns>& x, uint16_t sign, uint16_t (&row)[8],
                                              char* target, int64_t row_stride, uint32_t channel, int rank) {
  uint32_t packed[4] = {};
  target += 2 * channel;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    const uint16_t rounded = saturate_to_half(x[r]);
    packed[r / 2] |= static_cast<uint32_t>(static_cast<uint16_t>(rounded ^ sign)) << 16 * (r % 2);
    if (r < rank) *reinterpret_cast<uint16_t*>(target) = rounded;
    target += row_stride;
  }
  *reinterpret_cast<uint4*>(row) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
}

// diag(s_v) C diag(c): the codes as halves, with c as two diagonal tiles, hi and mid.
template <int kColumns>
__device__ __forceinline__ void start_residual(const SharedStorage<kColumns>& smem, const Place& place,
                                               uint32_t exponents, Residual& e) {
  constexpr uint32_t kSigns = 0x80808080u;
  // The lane's inner indices 2 t, 2 t + 1 of a diagonal tile meet its column g in one of the two, or in none.
  const bool on_diagonal = place.g / 2 == place.t;
  const uint32_t pick_hi = !on_diagonal ? 0x4444u : place.g % 2 == 0 ? 0x4410u : 0x1044u;
  const uint32_t pick_mid = !on_diagonal ? 0x4444u : place.g % 2 == 0 ? 0x4432u : 0x3244u;
  const float unit = power_inverse(scale_power(smem));
  float scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) scale[i] = smem.value_scale[place.accumulator_row(i)] * unit;
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    CodeFragment codes[2];
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      load_codes(smem, place, tile, step, codes[tile]);
#pragma unroll
      for (uint32_t& word : codes[tile]) word ^= kSigns;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int chunk = 4 * half + step;
      const uint2 terms = *reinterpret_cast<const uint2*>(&smem.code_terms[16 * chunk + 2 * place.g]);
      const auto column_tile = [&](int odd, uint32_t term, auto convert) {
        const uint32_t hi = __byte_perm(term, 0, pick_hi);
        const uint32_t mid = __byte_perm(term, 0, pick_mid);
#pragma unroll
        for (int tile = 0; tile < 2; ++tile) {
          const uint32_t low = convert(codes[tile][2 * half]);
          const uint32_t high = convert(codes[tile][2 * half + 1]);
          float* const c = &e[tile][4 * (2 * chunk + odd)];
          multiply_half_first(c, low, high, low, high, hi, mid);
          c[0] *= scale[2 * tile];
          c[1] *= scale[2 * tile];
          c[2] *= scale[2 * tile + 1];
          c[3] *= scale[2 * tile + 1];
        }
      };
      column_tile(0, terms.x, [=](uint32_t word) { return codes_to_halves<0x4240>(word, exponents); });
      column_tile(1, terms.y, [=](uint32_t word) { return codes_to_halves<0x4341>(word, exponents); });
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
  // Rows of 32 times four keys, the odd ones' exchanged, four in each of the places of the warp's codes.
  const auto sums_of = [&](uint32_t g, uint32_t quad) {
    return shared_address(smem.codes[16 * place.warp + g / 4 * 64]) + g % 4 * 512 + ((quad ^ g % 2 * 4) << 4);
  };
  __syncwarp();  // the codes have been read
#pragma unroll
  for (int chunk = 0; chunk < 8; ++chunk) {
    const auto sum = [&](int i) {
      const float* const low = &e[0][8 * chunk + i];
      const float* const high = &e[1][8 * chunk + i];
      return __float_as_uint((fabsf(low[0]) + fabsf(low[2])) + (fabsf(high[0]) + fabsf(high[2])));
    };
    store_shared(sums_of(place.g, 4 * chunk + place.t), make_uint4(sum(0), sum(4), sum(1), sum(5)));
  }
  __syncwarp();
  float total[4] = {};
#pragma unroll
  for (int g = 0; g < 8; ++g) {
    const uint4 part = load_shared16(sums_of(g, place.lane));
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
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
    if (tile > 0) __syncwarp();  // the first one has been read
#pragma unroll
    for (int chunk = 0; chunk < 8; chunk += 2) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const first = &e[tile][8 * (chunk + i / 2) + 2 * (i % 2)];
        const auto code = [&](float value) { return code_of(value, code_factor[2 * tile + i % 2]); };
        word[i] = pack_codes(code(first[0]), code(first[4]), code(first[1]), code(first[5]));
      }
      store_matrices(word, staged + code_offset(place.lane % 16, chunk + place.lane / 16));
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t row = 4 * i + place.lane / 8;
      reinterpret_cast<uint4*>(codes)[(64 * tile + 16 * place.warp + row) * 8 + place.lane % 8] =
          load_shared16(staged + code_offset(row, place.lane % 8));
    }
  }
}

}  // namespace leapquant::cuda
