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

// New factors for the last product: inner index the factor, 8 halves a row, zeros beyond the columns.
struct NewFactors {
  uint16_t value[kDim][8];  // -q', by value channel
  uint16_t key[kDim][8];    // u', by place
};

template <int kColumns>
__device__ __forceinline__ NewFactors& new_factors(SharedStorage<kColumns>& smem) {
  static_assert(sizeof(NewFactors) <= sizeof(smem.operand[1]));
  return *reinterpret_cast<NewFactors*>(smem.operand[1]);
}

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

// diag(s_v) C diag(c): c as diagonal tiles, one of hi and one of mid, to which the codes' fragments come as they are.
template <int kColumns>
__device__ __forceinline__ void start_residual(const SharedStorage<kColumns>& smem, const Place& place, Residual& e) {
  // The lane's inner indices 2 t, 2 t + 1 of the diagonal tile meet its column g in one of the two, or in none.
  const bool on_diagonal = place.g / 2 == place.t;
  const uint32_t pick_hi = !on_diagonal ? 0x4444u : place.g % 2 == 0 ? 0x4410u : 0x1044u;
  const uint32_t pick_mid = !on_diagonal ? 0x4444u : place.g % 2 == 0 ? 0x4432u : 0x3244u;
  float row_scale[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) row_scale[i] = smem.value_scale[place.accumulator_row(i)];
  const uint32_t row = 16 * place.warp + place.lane % 16;
  const uint32_t source = shared_address(smem.codes) + row * 128;
#pragma unroll
  for (int pair = 0; pair < 8; ++pair) {
    uint32_t hi[2];
    uint32_t mid[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t terms = smem.code_scale_terms[16 * pair + 8 * i + place.g];
      hi[i] = __byte_perm(terms, 0, pick_hi);
      mid[i] = __byte_perm(terms, 0, pick_mid);
    }
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      uint32_t fragment[4];
      load_matrices(fragment, source + pair / 4 * sizeof(smem.codes[0]) + tile * 64 * 128 +
                                  ((2 * (pair % 4) + place.lane / 16 ^ (row & 7)) << 4));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float* const c = &e[tile][4 * (2 * pair + i)];
        multiply_bfloat_first(c, fragment[2 * i], fragment[2 * i + 1], mid[i]);
        multiply_bfloat(c, fragment[2 * i], fragment[2 * i + 1], hi[i]);
        c[0] *= row_scale[2 * tile];
        c[1] *= row_scale[2 * tile];
        c[2] *= row_scale[2 * tile + 1];
        c[3] *= row_scale[2 * tile + 1];
      }
    }
  }
}

// E -= q' u', exactly multiplied.
template <int kColumns>
__device__ __forceinline__ void subtract_factors(SharedStorage<kColumns>& smem, const Place& place, Residual& e) {
  const NewFactors& factors = new_factors(smem);
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

// E += A B.
template <int kColumns>
__device__ __forceinline__ void add_window(const SharedStorage<kColumns>& smem, Residual& e) {
  using L = Layout<kColumns>;
  const Tiles<kColumns> tiles(smem);
  begin_products();
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      multiply(e[tile], tiles.columns(smem.value_side, tile, 0), tiles.columns(smem.key_side, 0, block), true);
    }
#pragma unroll
    for (int group = 0; group < L::kTiles; ++group) {
      multiply(e[tile], tiles.columns(smem.value_side, tile, 1 + group), tiles.columns(smem.key_side, 0, 2 + group),
               true);
    }
  }
  commit_products();
  wait_for_products<0>();
  finish(e[0]);
  finish(e[1]);
}

// The lane's half of kCount sums, with those of the lane that differs in bit kBit added; `value(i)` is the lane's own.
template <int kBit, int kCount, class Value>
__device__ __forceinline__ void halve_sums(float (&sum)[kCount / 2], uint32_t lane, Value value) {
  const bool upper = (lane & kBit) != 0;
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) {
    const float low = value(i);
    const float high = value(kCount / 2 + i);
    sum[i] = (upper ? high : low) + __shfl_xor_sync(kFullWarp, upper ? low : high, kBit);
  }
}

// The warp's sums of abs E over its rows, by place.
template <int kColumns>
__device__ __forceinline__ void write_column_parts(SharedStorage<kColumns>& smem, const Place& place,
                                                   const Residual& e) {
  // Over g: lane g ends with column tiles 2 g and 2 g + 1.
  float sum16[16];
  halve_sums<16, 32>(sum16, place.lane, [&](int column) {
    const int first = 4 * (column / 2) + column % 2;
    return (fabsf(e[0][first]) + fabsf(e[0][first + 2])) + (fabsf(e[1][first]) + fabsf(e[1][first + 2]));
  });
  float sum8[8];
  halve_sums<8, 16>(sum8, place.lane, [&](int column) { return sum16[column]; });
  float sum[4];
  halve_sums<4, 8>(sum, place.lane, [&](int column) { return sum8[column]; });
  float* const part = &smem.column_part[place.warp][16 * place.g + 2 * place.t];
  *reinterpret_cast<float2*>(part) = make_float2(sum[0], sum[1]);
  *reinterpret_cast<float2*>(part + 8) = make_float2(sum[2], sum[3]);
}

// s_k' of the thread's column (a place), and whether the state was finite there.
template <int kColumns>
__device__ __forceinline__ void finish_columns(SharedStorage<kColumns>& smem, uint32_t column, char* key_scales) {
  const float sum = (smem.column_part[0][column] + smem.column_part[1][column]) +
                    (smem.column_part[2][column] + smem.column_part[3][column]);
  if (!is_finite_sum(sum)) smem.non_finite = 1;
  const float key_scale = key_scale_of(sum);
  reinterpret_cast<float*>(key_scales)[key_of_place(column)] = key_scale;
  smem.key_inverse[place_by_tile_pairs(column)] = divide(1.0f, key_scale);
}

// E / s_k', and from its rows' maxima s_v'; returns 127 / s_v' of the four rows.
template <int kColumns>
__device__ __forceinline__ void scale_rows(const SharedStorage<kColumns>& smem, const Place& place, char* value_scales,
                                           Residual& e, float (&code_factor)[4]) {
  float largest[4] = {};
#pragma unroll
  for (int j = 0; j < 16; j += 2) {
    const float4 inverse = *reinterpret_cast<const float4*>(&smem.key_inverse[8 * j + 4 * place.t]);
#pragma unroll
    for (int row = 0; row < 4; ++row) {
      float* const pair = &e[row / 2][4 * j + 2 * (row % 2)];
      pair[0] *= inverse.x;
      pair[1] *= inverse.y;
      pair[4] *= inverse.z;
      pair[5] *= inverse.w;
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

// codes' = round(127 E / (s_k' s_v')). The lane's places of half a row are 16 consecutive keys.
__device__ __forceinline__ void store_codes(const Residual& e, const Place& place, const float (&code_factor)[4],
                                            char* codes) {
#pragma unroll
  for (int row = 0; row < 4; ++row) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = 8 * half + 2 * i;
        const float* const first = &e[row / 2][4 * j + 2 * (row % 2)];
        const auto code = [&](float value) { return code_of(value, code_factor[row]); };
        word[i] = pack_codes(code(first[0]), code(first[1]), code(first[4]), code(first[5]));
      }
      *reinterpret_cast<uint4*>(codes + place.accumulator_row(row) * kDim + 64 * half + 16 * place.t) =
          make_uint4(word[0], word[1], word[2], word[3]);
    }
  }
}

}  // namespace leapquant::cuda
