// SPDX-License-Identifier: Apache-2.0
//
// The flush of one program on one core, for any instruction set. Steps as in docs/format.md.
//
// At rank 4 a program costs 0.59 M multiply-adds in the products (rebuild 20, three thin products 4 each, residual 4,
// times V·K = 16,384) and five passes over a state of 72 KiB that stays in the second-level cache:
//
//   prepare    key side of the window and old factors decayed in fp32; scales and exp(pcum) folded together
//   rebuild    S from codes, old factors and window; Sᵀq0 accumulated from the registers that hold S
//   iterate    P = orth(Sᵀq0), Q = orth(S P), U = Sᵀ Q
//   compress   E = S - q'ᵀ u' over S, column sums of |E|
//   quantize   row scales and codes
//
// Sums run in a fixed order: over v and over window entries one after another, over k by sixteen lanes and a tree.
//
// Included once per instruction set by foreach_target.
#if defined(LQ_CPU_FLUSH_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LQ_CPU_FLUSH_KERNEL_INL_H_
#undef LQ_CPU_FLUSH_KERNEL_INL_H_
#else
#define LQ_CPU_FLUSH_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "core/numerics.h"
#include "cpu/flush_kernel.h"
#include "cpu/lanes16-inl.h"
#include "cpu/math16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace leapquant::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Register tiles. A tile of the state is kTileRows rows by kTileColumns groups of sixteen; its accumulators, one
// operand row and a broadcast must fit in the registers of the instruction set.
struct Config {
#if HWY_TARGET == HWY_AVX3
  static constexpr size_t kTileRows = 8;
  static constexpr size_t kTileColumns = 2;
  static constexpr size_t kAccumulators = 16;
#elif HWY_TARGET == HWY_NEON
  static constexpr size_t kTileRows = 4;
  static constexpr size_t kTileColumns = 1;
  static constexpr size_t kAccumulators = 16;
#else
  static constexpr size_t kTileRows = HWY_MAX(8 / kParts, 1);
  static constexpr size_t kTileColumns = 1;
  static constexpr size_t kAccumulators = 8;
#endif
  // Rows of S P at a time: rank · kParts accumulators a row.
  static constexpr size_t product_rows(size_t rank) { return HWY_MAX(kAccumulators / (rank * kParts), 1); }

  static_assert(kValueDim % kTileRows == 0 && kKeyDim % (16 * kTileColumns) == 0);
};

inline constexpr size_t kTileKeys = 16 * Config::kTileColumns;

struct Tile {
  Lanes16 at[Config::kTileRows][Config::kTileColumns];
};

// ---- prepare -------------------------------------------------------------------------------------------------------

HWY_INLINE float largest_magnitude(const float* values, size_t count) {
  Lanes16 largest = set16(0.0f);
  for (size_t i = 0; i < count; i += 16) largest = max16(largest, abs16(load16(values + i)));
  return largest16(largest);
}

// Multiplies by the power of two that brings the largest magnitude near 1, so that norms neither underflow nor
// overflow.
HWY_INLINE void scale_near_one(float* values, size_t count) {
  const float largest = largest_magnitude(values, count);
  if (largest == 0.0f || !std::isfinite(largest)) return;
  const int shift = std::clamp(-std::ilogb(largest), -126, 127);
  const Lanes16 factor = set16(std::ldexp(1.0f, shift));
  for (size_t i = 0; i < count; i += 16) store16(mul16(load16(values + i), factor), values + i);
}

// What the checkpoint has seen since it was made.
HWY_INLINE Lanes16 checkpoint_decay(Gate gate, const WindowProgram& window, size_t k) {
  return gate == Gate::kGdn ? set16(*window.decay) : exp16(load16(window.log_decay + k));
}

template <size_t kRank>
void prepare_start(const float* start_basis, FlushWorkspace& workspace) {
  for (size_t r = 0; r < kRank; ++r) {
    float* column = workspace.start + r * kValueDim;
    for (size_t v = 0; v < kValueDim; ++v) column[v] = start_basis[v * kRank + r];
    scale_near_one(column, kValueDim);
  }
}

// Key and value sides of the rebuild: rows [0, kRank) are the old factors, then come the window entries whose weight is
// not 0. Returns the inner size.
template <size_t kRank>
HWY_INLINE size_t prepare_products(Gate gate, const CheckpointProgram& source, const WindowProgram& window,
                                   FlushWorkspace& workspace) {
  size_t entry_row[kWindow];
  size_t inner = kRank;
  for (size_t j = 0; j < kWindow; ++j) {
    entry_row[j] = inner;
    if (window.window_weight[j] != 0.0f) ++inner;
  }
  for (size_t k = 0; k < kKeyDim; k += 16) {
    const Lanes16 decay = checkpoint_decay(gate, window, k);
    const Lanes16 code_scale =
        map16([](Vector x) HWY_ATTR { return hn::Div(x, hn::Set(F32(), kCodeMax)); }, load16(source.key_scale + k));
    store16(mul16(code_scale, decay), workspace.code_scale + k);
    for (size_t r = 0; r < kRank; ++r) {
      store16(mul16(load16(source.key_factor + r * source.key_factor_row + k), decay),
              workspace.right + r * kKeyDim + k);
    }
    // D_j, the product of the gates after entry j, by multiplication alone. The weights of GDN have it in them.
    Lanes16 entry_decay = set16(1.0f);
    for (size_t j = kWindow; j-- > 0;) {
      const float weight = window.window_weight[j];
      if (weight != 0.0f) {
        const Lanes16 key = mul16(set16(weight), load16(window.window_key + j * kKeyDim + k));
        store16(mul16(key, entry_decay), workspace.right + entry_row[j] * kKeyDim + k);
      }
      if (gate == Gate::kKda) entry_decay = mul16(entry_decay, load16(window.window_gate + j * kKeyDim + k));
    }
  }
  for (size_t v = 0; v < kValueDim; v += 16) {
    for (size_t r = 0; r < kRank; ++r) {
      store16(load16(source.value_factor + r * source.value_factor_row + v), workspace.left + r * kValueDim + v);
    }
    for (size_t j = 0; j < kWindow; ++j) {
      if (window.window_weight[j] == 0.0f) continue;
      store16(load16(window.window_update + j * kValueDim + v), workspace.left + entry_row[j] * kValueDim + v);
    }
  }
  return inner;
}

// ---- products with the state ---------------------------------------------------------------------------------------

// thin[r, k] += sum over the tile's rows of coefficient[r, v] · tile[v, k], row after row.
template <size_t kRank>
HWY_INLINE void project_tile(const Tile& tile, const float* HWY_RESTRICT coefficient, float* HWY_RESTRICT thin) {
  for (size_t r = 0; r < kRank; ++r) {
    Lanes16 sum[Config::kTileColumns];
    for (size_t c = 0; c < Config::kTileColumns; ++c) sum[c] = load16(thin + r * kKeyDim + 16 * c);
    for (size_t row = 0; row < Config::kTileRows; ++row) {
      const Lanes16 scale = set16(coefficient[r * kValueDim + row]);
      for (size_t c = 0; c < Config::kTileColumns; ++c) sum[c] = mul_add16(scale, tile.at[row][c], sum[c]);
    }
    for (size_t c = 0; c < Config::kTileColumns; ++c) store16(sum[c], thin + r * kKeyDim + 16 * c);
  }
}

// Calls `body(v, k)` for every tile's first row and key, row blocks outermost. Meanwhile fetches a third of the next
// program: there are three such passes.
template <class Body>
HWY_INLINE void for_each_tile(FlushWorkspace& workspace, Body body) {
  constexpr size_t kTiles = (kValueDim / Config::kTileRows) * (kKeyDim / kTileKeys);
  constexpr size_t kLinesPerTile = (kProgramLines + 3 * kTiles - 1) / (3 * kTiles);
  for (size_t v = 0; v < kValueDim; v += Config::kTileRows) {
    for (size_t k = 0; k < kKeyDim; k += kTileKeys) {
      workspace.upcoming.fetch(kLinesPerTile);
      body(v, k);
    }
  }
}

HWY_INLINE void load_tile(const float* HWY_RESTRICT state, Tile& tile) {
  for (size_t row = 0; row < Config::kTileRows; ++row) {
    for (size_t c = 0; c < Config::kTileColumns; ++c) tile.at[row][c] = load16(state + row * kStateRow + 16 * c);
  }
}

// Step 1: S. Calls `use(tile, v, k)` with every tile of it while it is in registers.
template <class Use>
HWY_INLINE void rebuild(const CheckpointProgram& source, size_t inner, FlushWorkspace& workspace, Use use) {
  for_each_tile(workspace, [&](size_t v, size_t k) HWY_ATTR {
    Tile tile;
    for (size_t row = 0; row < Config::kTileRows; ++row) {
      const Lanes16 row_scale = set16(source.value_scale[v + row]);
      for (size_t c = 0; c < Config::kTileColumns; ++c) {
        const Lanes16 code = load16(source.codes + (v + row) * kKeyDim + k + 16 * c);
        tile.at[row][c] = mul16(mul16(code, load16(workspace.code_scale + k + 16 * c)), row_scale);
      }
    }
    const float* HWY_RESTRICT left = workspace.left + v;
    const float* HWY_RESTRICT right = workspace.right + k;
    for (size_t i = 0; i < inner; ++i) {
      Lanes16 key[Config::kTileColumns];
      for (size_t c = 0; c < Config::kTileColumns; ++c) key[c] = load16(right + i * kKeyDim + 16 * c);
      for (size_t row = 0; row < Config::kTileRows; ++row) {
        const Lanes16 value = set16(left[i * kValueDim + row]);
        for (size_t c = 0; c < Config::kTileColumns; ++c) {
          tile.at[row][c] = mul_add16(value, key[c], tile.at[row][c]);
        }
      }
    }
    float* HWY_RESTRICT state = workspace.state + v * kStateRow + k;
    for (size_t row = 0; row < Config::kTileRows; ++row) {
      for (size_t c = 0; c < Config::kTileColumns; ++c) store16(tile.at[row][c], state + row * kStateRow + 16 * c);
    }
    use(tile, v, k);
  });
}

// value_thin = S P, P in key_thin.
template <size_t kRank>
HWY_INLINE void multiply_state(FlushWorkspace& workspace) {
  constexpr size_t kRows = Config::product_rows(kRank);
  for (size_t v = 0; v < kValueDim; v += kRows) {
    Lanes16 sum[kRows][kRank];
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t r = 0; r < kRank; ++r) sum[row][r] = set16(0.0f);
    }
    for (size_t k = 0; k < kKeyDim; k += 16) {
      Lanes16 state[kRows];
      for (size_t row = 0; row < kRows; ++row) state[row] = load16(workspace.state + (v + row) * kStateRow + k);
      for (size_t r = 0; r < kRank; ++r) {
        const Lanes16 p = load16(workspace.key_thin + r * kKeyDim + k);
        for (size_t row = 0; row < kRows; ++row) sum[row][r] = mul_add16(state[row], p, sum[row][r]);
      }
    }
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t r = 0; r < kRank; ++r) {
        store_quarter_sums(sum[row][r], workspace.partial + 4 * (r * kValueDim + v + row));
      }
    }
  }
  sum_quarters(workspace.partial, kRank * kValueDim, workspace.value_thin);
}

// key_thin = Sᵀ x for the columns x [R, V].
template <size_t kRank>
HWY_INLINE void multiply_transposed_state(const float* columns, FlushWorkspace& workspace) {
  std::fill_n(workspace.key_thin, kRank * kKeyDim, 0.0f);
  for_each_tile(workspace, [&](size_t v, size_t k) HWY_ATTR {
    Tile tile;
    load_tile(workspace.state + v * kStateRow + k, tile);
    project_tile<kRank>(tile, columns + v, workspace.key_thin + k);
  });
}

// ---- orthonormalization --------------------------------------------------------------------------------------------

inline constexpr size_t kThinLength = 128;
static_assert(kThinLength == kValueDim && kThinLength == kKeyDim);

HWY_INLINE float thin_dot(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b) {
  Lanes16 sum = set16(0.0f);
  for (size_t i = 0; i < kThinLength; i += 16) sum = mul_add16(load16(a + i), load16(b + i), sum);
  return sum16(sum);
}

HWY_INLINE float thin_norm(const float* column) { return std::sqrt(thin_dot(column, column)); }

// Removes from `column` its projections on the `earlier` columns of `thin`, all measured before any is removed.
HWY_INLINE void remove_projections(const float* thin, size_t earlier, float* column) {
  float projection[kMaxRank];
  for (size_t e = 0; e < earlier; ++e) projection[e] = thin_dot(thin + e * kThinLength, column);
  for (size_t i = 0; i < kThinLength; i += 16) {
    Lanes16 rest = load16(column + i);
    for (size_t e = 0; e < earlier; ++e) {
      rest = neg_mul_add16(set16(projection[e]), load16(thin + e * kThinLength + i), rest);
    }
    store16(rest, column + i);
  }
}

// orth, in place: Gram-Schmidt with every projection applied twice. A column that depends on the earlier ones, up to
// rounding, becomes zero (see kDependentNorm).
template <size_t kRank>
HWY_INLINE void orthonormalize(float* thin) {
  scale_near_one(thin, kRank * kThinLength);
  float largest_norm = 0.0f;
  for (size_t r = 0; r < kRank; ++r) largest_norm = std::max(largest_norm, thin_norm(thin + r * kThinLength));
  for (size_t r = 0; r < kRank; ++r) {
    float* column = thin + r * kThinLength;
    float norm_before = 0.0f;
    float norm = 0.0f;
    for (int pass = 0; pass < 2; ++pass) {
      if (r != 0) remove_projections(thin, r, column);
      norm_before = norm;
      norm = thin_norm(column);
    }
    const bool dependent = norm <= static_cast<float>(kDependentNorm) * largest_norm ||
                           norm < static_cast<float>(kSecondProjectionLoss) * norm_before;
    const Lanes16 factor = set16(dependent ? 0.0f : 1.0f / norm);
    for (size_t i = 0; i < kThinLength; i += 16) store16(mul16(load16(column + i), factor), column + i);
  }
}

// ---- compress and quantize -----------------------------------------------------------------------------------------

// Writes thin [R, n] as fp16 rows and reads the rounded values back.
template <size_t kRank>
HWY_INLINE void round_factors(float* thin, Half* factor, int64_t factor_row) {
  for (size_t r = 0; r < kRank; ++r) {
    Half* row = factor + static_cast<int64_t>(r) * factor_row;
    for (size_t i = 0; i < kThinLength; i += 16) {
      store16(load16(thin + r * kThinLength + i), row + i);
      store16(load16(row + i), thin + r * kThinLength + i);
    }
  }
}

// E = S - q'ᵀ u' in place, and the column sums of |E|.
template <size_t kRank>
HWY_INLINE void subtract_factors(FlushWorkspace& workspace) {
  std::fill_n(workspace.column, kKeyDim, 0.0f);
  for_each_tile(workspace, [&](size_t v, size_t k) HWY_ATTR {
    float* HWY_RESTRICT state = workspace.state + v * kStateRow + k;
    Tile tile;
    load_tile(state, tile);
    for (size_t r = 0; r < kRank; ++r) {
      for (size_t c = 0; c < Config::kTileColumns; ++c) {
        const Lanes16 key = load16(workspace.key_thin + r * kKeyDim + k + 16 * c);
        for (size_t row = 0; row < Config::kTileRows; ++row) {
          const Lanes16 value = set16(workspace.value_thin[r * kValueDim + v + row]);
          tile.at[row][c] = neg_mul_add16(value, key, tile.at[row][c]);
        }
      }
    }
    for (size_t c = 0; c < Config::kTileColumns; ++c) {
      Lanes16 sum = load16(workspace.column + k + 16 * c);
      for (size_t row = 0; row < Config::kTileRows; ++row) {
        sum = add16(sum, abs16(tile.at[row][c]));
        store16(tile.at[row][c], state + row * kStateRow + 16 * c);
      }
      store16(sum, workspace.column + k + 16 * c);
    }
  });
}

// s_k' = max(sqrt(mean |E|), floor), and column = 1 / s_k'. False when a column sum is not finite, which is when the
// state was not.
HWY_INLINE bool scale_columns(float* key_scale, FlushWorkspace& workspace) {
  const F32 df;
  Lanes16 sum_of_all = set16(0.0f);
  for (size_t k = 0; k < kKeyDim; k += 16) {
    const Lanes16 sum = load16(workspace.column + k);
    // 0 · x is 0 for a finite x and NaN otherwise.
    sum_of_all = mul_add16(sum, set16(0.0f), sum_of_all);
    const Lanes16 scale = map16(
        [df](Vector x) HWY_ATTR {
          const Vector root = hn::Sqrt(hn::Mul(x, hn::Set(df, 1.0f / kValueDim)));
          const Vector floor = hn::Set(df, kScaleFloor);
          return hn::IfThenElse(hn::Lt(root, floor), floor, root);
        },
        sum);
    store16(scale, key_scale + k);
    const Lanes16 inverse = map16([df](Vector x) HWY_ATTR { return hn::Div(hn::Set(df, 1.0f), x); }, scale);
    store16(inverse, workspace.column + k);
  }
  return sum16(sum_of_all) == 0.0f;
}

// Rounds to the nearest code, ties to even: adding 1.5 · 2^23 leaves the integer in the low bits. In range for any
// bits, NaN included, since DemoteTo saturates at 127.
HWY_INLINE void store_codes(const Lanes16& smoothed, float scale, int8_t* codes) {
  const F32 df;
  const I32 di;
  const hn::Rebind<int8_t, F32> d8;
  constexpr float kRounder = 12582912.0f;
  constexpr int32_t kRounderBits = 0x4B400000;
  for (size_t i = 0; i < kParts; ++i) {
    const Vector rounded = hn::MulAdd(smoothed.part[i], hn::Set(df, scale), hn::Set(df, kRounder));
    const auto code = hn::Sub(hn::BitCast(di, rounded), hn::Set(di, kRounderBits));
    hn::StoreU(hn::DemoteTo(d8, hn::Max(code, hn::Set(di, -127))), d8, codes + i * kLanes);
  }
}

// s_v' = max(max_k |E| / s_k', floor); codes' = round(127 E / (s_k' s_v')).
HWY_INLINE void quantize_rows(const CheckpointProgram& target, FlushWorkspace& workspace) {
  for (size_t v = 0; v < kValueDim; ++v) {
    const float* HWY_RESTRICT residual = workspace.state + v * kStateRow;
    Lanes16 largest = set16(kScaleFloor);
    for (size_t k = 0; k < kKeyDim; k += 16) {
      largest = max16(largest, abs16(mul16(load16(residual + k), load16(workspace.column + k))));
    }
    const float row_scale = largest16(largest);
    target.value_scale[v] = row_scale;
    const float code_scale = kCodeMax / row_scale;
    for (size_t k = 0; k < kKeyDim; k += 16) {
      store_codes(mul16(load16(residual + k), load16(workspace.column + k)), code_scale,
                  target.codes + v * kKeyDim + k);
    }
  }
}

// ---- the flush -----------------------------------------------------------------------------------------------------

// Steps 2 and 3 of the state in the workspace, whose first product, Sᵀ q0, is in key_thin. False when it is not finite.
template <size_t kRank>
HWY_INLINE bool store_checkpoint(const CheckpointProgram& target, FlushWorkspace& workspace) {
  orthonormalize<kRank>(workspace.key_thin);
  multiply_state<kRank>(workspace);
  orthonormalize<kRank>(workspace.value_thin);
  multiply_transposed_state<kRank>(workspace.value_thin, workspace);
  round_factors<kRank>(workspace.key_thin, target.key_factor, target.key_factor_row);
  round_factors<kRank>(workspace.value_thin, target.value_factor, target.value_factor_row);
  subtract_factors<kRank>(workspace);
  const bool finite = scale_columns(target.key_scale, workspace);
  quantize_rows(target, workspace);
  return finite;
}

// The first product of step 2 is taken while step 1 has the state in registers.
template <size_t kRank>
bool flush_program(Gate gate, const CheckpointProgram& source, const WindowProgram& window,
                   const CheckpointProgram& target, FlushWorkspace& workspace) {
  const size_t inner = prepare_products<kRank>(gate, source, window, workspace);
  std::fill_n(workspace.key_thin, kRank * kKeyDim, 0.0f);
  rebuild(source, inner, workspace, [&](const Tile& tile, size_t v, size_t k) HWY_ATTR {
    project_tile<kRank>(tile, workspace.start + v, workspace.key_thin + k);
  });
  return store_checkpoint<kRank>(target, workspace);
}

template <size_t kRank>
FlushKernel kernel_of_rank() {
  return {&prepare_start<kRank>, &flush_program<kRank>};
}

inline FlushKernel flush_kernel(int32_t rank) {
  switch (rank) {
    case 1:
      return kernel_of_rank<1>();
    case 2:
      return kernel_of_rank<2>();
    case 4:
      return kernel_of_rank<4>();
    default:
      return kernel_of_rank<8>();
  }
}

}  // namespace leapquant::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LQ_CPU_FLUSH_KERNEL_INL_H_
