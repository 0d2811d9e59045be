// SPDX-License-Identifier: Apache-2.0
//
// Functions of sixteen lanes, right for every bit pattern.
//
// Included once per instruction set by foreach_target.
#if defined(LQ_CPU_MATH16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LQ_CPU_MATH16_INL_H_
#undef LQ_CPU_MATH16_INL_H_
#else
#define LQ_CPU_MATH16_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <limits>

#include "core/numerics.h"
#include "cpu/lanes16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace leapquant::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway's exp makes 0 of NaN, which would hide it, and is undefined above 104, where fp32 has overflowed.
HWY_INLINE Vector exp_any(Vector x) {
  const F32 df;
  const Vector beyond = hn::Mul(x, hn::Set(df, std::numeric_limits<float>::infinity()));
  return hn::IfThenElse(hn::Lt(x, hn::Set(df, 104.0f)), hn::Exp(df, x), beyond);
}

HWY_INLINE Lanes16 exp16(const Lanes16& x) {
  return map16([](Vector v) HWY_ATTR { return exp_any(v); }, x);
}

// x from kSoftplusLinear on, and for NaN; log(1 + exp x) below.
HWY_INLINE Lanes16 softplus16(const Lanes16& x) {
  return map16(
      [](Vector v) HWY_ATTR {
        const F32 df;
        const auto curved = hn::Lt(v, hn::Set(df, kSoftplusLinear));
        return hn::IfThenElse(curved, hn::Log1p(df, hn::Exp(df, hn::IfThenElseZero(curved, v))), v);
      },
      x);
}

// 1 / (1 + exp -x)
HWY_INLINE Lanes16 sigmoid16(const Lanes16& x) {
  return map16(
      [](Vector v) HWY_ATTR {
        const Vector one = hn::Set(F32(), 1.0f);
        return hn::Div(one, hn::Add(one, exp_any(hn::Neg(v))));
      },
      x);
}

}  // namespace leapquant::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LQ_CPU_MATH16_INL_H_
