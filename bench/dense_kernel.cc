// SPDX-License-Identifier: Apache-2.0
#include "bench/dense_kernel.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/dense_kernel.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>
// Behind the loop over the targets.
#include <hwy/contrib/math/math-inl.h>

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace leapquant::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Vector = hn::Vec<F32>;

inline constexpr size_t kDim = 128;
inline constexpr size_t kRows = 4;  // rows at a time: two sums each cover the latency of the multiply-add units
inline constexpr size_t kLanes = hn::MaxLanes(F32());

// What all rows have in common.
struct Sides {
  alignas(64) float key[kDim];
  alignas(64) float query[kDim];
  alignas(64) float decay[kDim];
  alignas(64) float decayed_key[kDim];
  alignas(64) float decayed_query[kDim];
  float key_query;  // kn · qn
};

HWY_INLINE Vector load(const Bfloat16* from) {
  const hn::Rebind<hwy::bfloat16_t, F32> d16;
  return hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(from)));
}

HWY_INLINE float sum(Vector lanes) { return hn::GetLane(hn::SumOfLanes(F32(), lanes)); }

// out = length x / |x|
HWY_INLINE void normalize(const Bfloat16* x, float length, float* out) {
  Vector square = hn::Zero(F32());
  for (size_t k = 0; k < kDim; k += kLanes) {
    const Vector value = load(x + k);
    square = hn::MulAdd(value, value, square);
    hn::Store(value, F32(), out + k);
  }
  const Vector factor = hn::Set(F32(), length / std::sqrt(sum(square) + kNormFloor));
  for (size_t k = 0; k < kDim; k += kLanes) hn::Store(hn::Mul(hn::Load(F32(), out + k), factor), F32(), out + k);
}

HWY_INLINE Vector softplus(Vector x) {
  const auto curved = hn::Lt(x, hn::Set(F32(), kSoftplusLinear));
  return hn::IfThenElse(curved, hn::Log1p(F32(), hn::Exp(F32(), hn::IfThenElseZero(curved, x))), x);
}

HWY_INLINE Vector decay_of(Vector rate, Vector input) { return hn::Exp(F32(), hn::Mul(rate, softplus(input))); }

template <Gate kGate>
HWY_INLINE void prepare(const TokenProgram& token, Sides& sides) {
  normalize(token.key, 1.0f, sides.key);
  normalize(token.query, 1.0f / std::sqrt(static_cast<float>(kDim)), sides.query);
  const Vector rate = hn::Set(F32(), -std::exp(*token.log_rate));
  Vector decay = hn::Zero(F32());
  if constexpr (kGate == Gate::kGdn) {
    decay = decay_of(rate, hn::Set(F32(), to_float(*token.gate_input) + *token.gate_bias));
  }
  Vector key_query = hn::Zero(F32());
  for (size_t k = 0; k < kDim; k += kLanes) {
    if constexpr (kGate == Gate::kKda) {
      decay = decay_of(rate, hn::Add(load(token.gate_input + k), hn::LoadU(F32(), token.gate_bias + k)));
    }
    const Vector key = hn::Load(F32(), sides.key + k);
    const Vector query = hn::Load(F32(), sides.query + k);
    hn::Store(decay, F32(), sides.decay + k);
    hn::Store(hn::Mul(decay, key), F32(), sides.decayed_key + k);
    hn::Store(hn::Mul(decay, query), F32(), sides.decayed_query + k);
    key_query = hn::MulAdd(key, query, key_query);
  }
  sides.key_query = sum(key_query);
}

// Both products of kRows rows with the decayed state, then their update while they are in the first-level cache.
HWY_INLINE void step_rows(const Sides& sides, const Bfloat16* value, float beta, float* HWY_RESTRICT rows,
                          Bfloat16* output) {
  const F32 df;
  Vector with_key[kRows];
  Vector with_query[kRows];
  for (size_t r = 0; r < kRows; ++r) with_key[r] = with_query[r] = hn::Zero(df);
  for (size_t k = 0; k < kDim; k += kLanes) {
    const Vector key = hn::Load(df, sides.decayed_key + k);
    const Vector query = hn::Load(df, sides.decayed_query + k);
    for (size_t r = 0; r < kRows; ++r) {
      const Vector state = hn::Load(df, rows + r * kDim + k);
      with_key[r] = hn::MulAdd(state, key, with_key[r]);
      with_query[r] = hn::MulAdd(state, query, with_query[r]);
    }
  }
  Vector update[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const float new_value = beta * (to_float(value[r]) - sum(with_key[r]));
    output[r] = to_bfloat16(sum(with_query[r]) + sides.key_query * new_value);
    update[r] = hn::Set(df, new_value);
  }
  for (size_t k = 0; k < kDim; k += kLanes) {
    const Vector decay = hn::Load(df, sides.decay + k);
    const Vector key = hn::Load(df, sides.key + k);
    for (size_t r = 0; r < kRows; ++r) {
      float* const at = rows + r * kDim + k;
      hn::Store(hn::MulAdd(update[r], key, hn::Mul(decay, hn::Load(df, at))), df, at);
    }
  }
}

template <Gate kGate>
void step_dense(const TokenProgram& token, float* state, Bfloat16* output) {
  Sides sides;
  prepare<kGate>(token, sides);
  const float beta = to_float(beta_of(*token.beta_input));
  for (size_t v = 0; v < kDim; v += kRows) step_rows(sides, token.value + v, beta, state + v * kDim, output + v);
}

inline DenseKernel make_kernel(Gate gate) {
  return gate == Gate::kKda ? &step_dense<Gate::kKda> : &step_dense<Gate::kGdn>;
}

}  // namespace leapquant::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "bench/simd_target.h"

namespace leapquant::bench {
namespace {

HWY_EXPORT(make_kernel);

}  // namespace

DenseKernel dense_kernel(const std::string& target, Gate gate) {
  return HWY_DISPATCH_TABLE(make_kernel)[target_index(HWY_TARGETS, target)](gate);
}

}  // namespace leapquant::bench

#endif  // HWY_ONCE
