// SPDX-License-Identifier: Apache-2.0
#include "bench/multiply_add_peak.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/multiply_add_peak.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace leapquant::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Vector = hn::Vec<F32>;

// Chains enough to cover the latency of two multiply-add units, few enough for sixteen registers.
constexpr int kChains = 12;

inline float run_chains(int64_t rounds) {
  const F32 df;
  const Vector factor = hn::Set(df, 0.999f);
  const Vector term = hn::Set(df, 1e-3f);
  Vector chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(df, static_cast<float>(i));
  for (int64_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, term);
  }
  Vector sum = chain[0];
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  return hn::GetLane(hn::SumOfLanes(df, sum));
}

inline MultiplyAddLoop make_loop() { return {&run_chains, kChains * static_cast<int64_t>(hn::MaxLanes(F32()))}; }

}  // namespace leapquant::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "bench/simd_target.h"

namespace leapquant::bench {
namespace {

HWY_EXPORT(make_loop);

}  // namespace

MultiplyAddLoop multiply_add_loop(const std::string& name) {
  return HWY_DISPATCH_TABLE(make_loop)[target_index(HWY_TARGETS, name)]();
}

}  // namespace leapquant::bench

#endif  // HWY_ONCE
