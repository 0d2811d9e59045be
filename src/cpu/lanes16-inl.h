// SPDX-License-Identifier: Apache-2.0
//
// Lanes16: sixteen fp32 lanes, whatever the width of the machine's vectors. Every reduction goes through the same tree,
// so that all instruction sets with fused multiply-add give the same bits.
//
// Included once per instruction set by foreach_target.
#if defined(LQ_CPU_LANES16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LQ_CPU_LANES16_INL_H_
#undef LQ_CPU_LANES16_INL_H_
#else
#define LQ_CPU_LANES16_INL_H_
#endif

#include <hwy/highway.h>

#include "core/numerics.h"

HWY_BEFORE_NAMESPACE();
namespace leapquant::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using I32 = hn::Rebind<int32_t, F32>;
using U32 = hn::Rebind<uint32_t, F32>;
using Vector = hn::Vec<F32>;

inline constexpr size_t kLanes = hn::MaxLanes(F32());
inline constexpr size_t kParts = 16 / kLanes;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr bool kNativeHalf = true;
#else
inline constexpr bool kNativeHalf = false;
#endif

struct Lanes16 {
  Vector part[kParts];
};

// Applies `op` to the corresponding parts.
template <class Op, class... Args>
HWY_INLINE Lanes16 map16(Op op, const Args&... args) {
  Lanes16 result;
  for (size_t i = 0; i < kParts; ++i) result.part[i] = op(args.part[i]...);
  return result;
}

HWY_INLINE Lanes16 load16(const float* from) {
  Lanes16 result;
  for (size_t i = 0; i < kParts; ++i) result.part[i] = hn::LoadU(F32(), from + i * kLanes);
  return result;
}

HWY_INLINE void store16(const Lanes16& value, float* to) {
  for (size_t i = 0; i < kParts; ++i) hn::StoreU(value.part[i], F32(), to + i * kLanes);
}

HWY_INLINE Lanes16 set16(float value) {
  Lanes16 result;
  for (size_t i = 0; i < kParts; ++i) result.part[i] = hn::Set(F32(), value);
  return result;
}

HWY_INLINE Lanes16 load16(const Bfloat16* from) {
  const hn::Rebind<hwy::bfloat16_t, F32> d16;
  Lanes16 result;
  for (size_t i = 0; i < kParts; ++i) {
    result.part[i] = hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(from + i * kLanes)));
  }
  return result;
}

HWY_INLINE Lanes16 load16(const int8_t* from) {
  const hn::Rebind<int8_t, F32> d8;
  Lanes16 result;
  for (size_t i = 0; i < kParts; ++i) {
    result.part[i] = hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(d8, from + i * kLanes)));
  }
  return result;
}

// fp16 bits, zero-extended, to fp32, for machines without the instruction. Exact; keeps Inf and NaN.
HWY_INLINE Vector half_bits_to_float(hn::Vec<U32> bits) {
  const U32 du;
  const F32 df;
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  // The exponent is short by 112 in the shifted pattern; a multiplication also normalises subnormals.
  const auto scaled = hn::Mul(hn::BitCast(df, hn::ShiftLeft<13>(magnitude)), hn::Set(df, 0x1p112f));
  const auto special = hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7BFF));
  const auto exponent = hn::IfThenElseZero(hn::RebindMask(df, special), hn::BitCast(df, hn::Set(du, 0x7F800000u)));
  return hn::BitCast(df, hn::Or(hn::Or(hn::BitCast(du, scaled), hn::BitCast(du, exponent)), sign));
}

// fp32 to fp16 bits, round to nearest even, for machines without the instruction. |value| <= 65504 or NaN.
HWY_INLINE hn::Vec<U32> float_to_half_bits(Vector value) {
  const U32 du;
  const F32 df;
  const auto bits = hn::BitCast(du, value);
  const auto sign = hn::ShiftRight<16>(hn::And(bits, hn::Set(du, 0x80000000u)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFu));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0xFFFu)), odd);
  const auto normal = hn::Sub(hn::ShiftRight<13>(rounded), hn::Set(du, 112u << 10));
  // Below 2^-14: adding 0.5 lets the hardware round to a multiple of 2^-24.
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, 0.5f));
  const auto subnormal = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3F000000u));
  const auto is_subnormal = hn::Lt(hn::BitCast(df, magnitude), hn::Set(df, 0x1p-14f));
  const auto finite = hn::IfThenElse(is_subnormal, hn::BitCast(df, subnormal), hn::BitCast(df, normal));
  const auto half = hn::IfThenElse(hn::Eq(value, value), finite, hn::BitCast(df, hn::Set(du, 0x7E00u)));
  return hn::Or(hn::BitCast(du, half), sign);
}

HWY_INLINE Lanes16 load16(const Half* from) {
  Lanes16 result;
  for (size_t i = 0; i < kParts; ++i) {
    if constexpr (kNativeHalf) {
      const hn::Rebind<hwy::float16_t, F32> d16;
      result.part[i] = hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from + i * kLanes)));
    } else {
      const hn::Rebind<uint16_t, F32> d16;
      const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from + i * kLanes));
      result.part[i] = half_bits_to_float(hn::PromoteTo(U32(), bits));
    }
  }
  return result;
}

// Rounds to fp16 after saturation at +-65504. NaN stays NaN.
HWY_INLINE void store16(const Lanes16& value, Half* to) {
  const F32 df;
  for (size_t i = 0; i < kParts; ++i) {
    const Vector limit = hn::Set(df, kHalfMax);
    const auto beyond = hn::Gt(hn::Abs(value.part[i]), limit);
    const Vector saturated = hn::IfThenElse(beyond, hn::CopySign(limit, value.part[i]), value.part[i]);
    if constexpr (kNativeHalf) {
      const hn::Rebind<hwy::float16_t, F32> d16;
      hn::StoreU(hn::DemoteTo(d16, saturated), d16, reinterpret_cast<hwy::float16_t*>(to + i * kLanes));
    } else {
      const hn::Rebind<uint16_t, F32> d16;
      const auto bits = hn::BitCast(I32(), float_to_half_bits(saturated));
      hn::StoreU(hn::DemoteTo(d16, bits), d16, reinterpret_cast<uint16_t*>(to + i * kLanes));
    }
  }
}

// Rounds to bf16, ties to even. NaN stays NaN. By hand on every machine: the instruction that some have flushes
// subnormal numbers to zero.
HWY_INLINE void store16(const Lanes16& value, Bfloat16* to) {
  const U32 du;
  const hn::Rebind<uint16_t, F32> d16;
  for (size_t i = 0; i < kParts; ++i) {
    const auto bits = hn::BitCast(du, value.part[i]);
    const auto upper = hn::ShiftRight<16>(bits);
    const auto half_step = hn::Add(hn::And(upper, hn::Set(du, 1u)), hn::Set(du, 0x7FFFu));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half_step));
    const auto number = hn::RebindMask(du, hn::Eq(value.part[i], value.part[i]));
    const auto result = hn::IfThenElse(number, rounded, hn::Or(upper, hn::Set(du, 0x40u)));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(I32(), result)), d16, reinterpret_cast<uint16_t*>(to + i * kLanes));
  }
}

HWY_INLINE Lanes16 mul16(const Lanes16& a, const Lanes16& b) {
  return map16([](Vector x, Vector y) HWY_ATTR { return hn::Mul(x, y); }, a, b);
}

HWY_INLINE Lanes16 add16(const Lanes16& a, const Lanes16& b) {
  return map16([](Vector x, Vector y) HWY_ATTR { return hn::Add(x, y); }, a, b);
}

HWY_INLINE Lanes16 sub16(const Lanes16& a, const Lanes16& b) {
  return map16([](Vector x, Vector y) HWY_ATTR { return hn::Sub(x, y); }, a, b);
}

HWY_INLINE Lanes16 mul_add16(const Lanes16& a, const Lanes16& b, const Lanes16& c) {
  return map16([](Vector x, Vector y, Vector z) HWY_ATTR { return hn::MulAdd(x, y, z); }, a, b, c);
}

// c - a b
HWY_INLINE Lanes16 neg_mul_add16(const Lanes16& a, const Lanes16& b, const Lanes16& c) {
  return map16([](Vector x, Vector y, Vector z) HWY_ATTR { return hn::NegMulAdd(x, y, z); }, a, b, c);
}

HWY_INLINE Lanes16 abs16(const Lanes16& a) {
  return map16([](Vector x) HWY_ATTR { return hn::Abs(x); }, a);
}

HWY_INLINE Lanes16 max16(const Lanes16& a, const Lanes16& b) {
  return map16([](Vector x, Vector y) HWY_ATTR { return hn::Max(x, y); }, a, b);
}

// Adds lanes l, l + 4, l + 8 and l + 12 as (l + l8) + (l4 + l12), leaving four quarter sums.
HWY_INLINE void store_quarter_sums(const Lanes16& value, float* HWY_RESTRICT to) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t l = 0; l < 4; ++l) {
    const Vector low = hn::Add(value.part[l], value.part[l + 8]);
    const Vector high = hn::Add(value.part[l + 4], value.part[l + 12]);
    hn::StoreU(hn::Add(low, high), F32(), to + l);
  }
#elif HWY_MAX_BYTES == 64
  const hn::CappedTag<float, 8> d8;
  const hn::CappedTag<float, 4> d4;
  const auto eight = hn::Add(hn::LowerHalf(d8, value.part[0]), hn::UpperHalf(d8, value.part[0]));
  hn::StoreU(hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight)), d4, to);
#elif HWY_MAX_BYTES == 32
  const hn::CappedTag<float, 4> d4;
  const auto eight = hn::Add(value.part[0], value.part[1]);
  hn::StoreU(hn::Add(hn::LowerHalf(d4, eight), hn::UpperHalf(d4, eight)), d4, to);
#else
  hn::StoreU(hn::Add(hn::Add(value.part[0], value.part[2]), hn::Add(value.part[1], value.part[3])), F32(), to);
#endif
}

// Sums of `count` groups of four quarter sums: (q0 + q1) + (q2 + q3). `count` is a multiple of 16.
HWY_INLINE void sum_quarters(const float* HWY_RESTRICT quarters, size_t count, float* HWY_RESTRICT to) {
  for (size_t i = 0; i < count; i += kLanes) {
    Vector q0, q1, q2, q3;
    hn::LoadInterleaved4(F32(), quarters + 4 * i, q0, q1, q2, q3);
    hn::StoreU(hn::Add(hn::Add(q0, q1), hn::Add(q2, q3)), F32(), to + i);
  }
}

HWY_INLINE float sum16(const Lanes16& value) {
  float quarters[4];
  store_quarter_sums(value, quarters);
  return (quarters[0] + quarters[1]) + (quarters[2] + quarters[3]);
}

// The largest lane; the order of comparisons does not matter to it.
HWY_INLINE float largest16(const Lanes16& value) {
  Vector largest = value.part[0];
  for (size_t i = 1; i < kParts; ++i) largest = hn::Max(largest, value.part[i]);
  return hn::GetLane(hn::MaxOfLanes(F32(), largest));
}

}  // namespace leapquant::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LQ_CPU_LANES16_INL_H_
