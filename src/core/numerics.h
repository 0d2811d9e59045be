// SPDX-License-Identifier: Apache-2.0
//
// Numbers: the 16-bit types of the format, their conversions, and the constants that all backends share.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace leapquant {

// IEEE 754 binary16 and the upper half of binary32. Bit patterns, so that a CPU without either type can hold them.
struct Half {
  uint16_t bits;
};
struct Bfloat16 {
  uint16_t bits;
};

inline constexpr float kCodeMax = 127.0f;      // residual codes lie in [-kCodeMax, kCodeMax]
inline constexpr float kScaleFloor = 1e-12f;   // smallest scale: bit pattern 0x2B8CBCCC
inline constexpr float kHalfMax = 65504.0f;    // a factor saturates here before it is rounded to fp16
inline constexpr uint16_t kHalfOne = 0x3C00u;  // 1.0 as fp16

// A column of the subspace iteration counts as dependent on the earlier ones when, after two projections, its norm is
// below kDependentNorm of the largest column's: that is where fp32 rounding of the products puts a zero.
inline constexpr double kDependentNorm = 4e-6;
// ... or when the second projection still took half of it: what is left then is rounding noise along earlier columns.
inline constexpr double kSecondProjectionLoss = 0.5;

// The token step (docs/format.md).
inline constexpr float kNormFloor = 1e-6f;       // added to the squared norm of a key or query
inline constexpr float kSoftplusLinear = 20.0f;  // softplus(x) = x from here on
// Keys and queries beyond kLoudInput are scaled by kLoudScale before they are squared: finite inputs stay finite.
inline constexpr float kLoudInput = 0x1p40f;
inline constexpr float kLoudScale = 0x1p-80f;

inline float to_float(Bfloat16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }

inline float to_float(Half value) {
  const uint32_t sign = uint32_t{value.bits & 0x8000u} << 16;
  const uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  const uint32_t mantissa = value.bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24 is exact in fp32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// Round to nearest, ties to even. NaN stays NaN.
inline Bfloat16 to_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// beta = bf16(sigmoid(b)). The rounding is part of the format: in double, so that no backend lands on the other side of
// a tie.
inline Bfloat16 beta_of(Bfloat16 input) {
  return to_bfloat16(static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(to_float(input))))));
}

// Round to nearest, ties to even, with a double rounding never happening: from double or float alike. Values beyond the
// range become infinite; callers that must stay finite saturate first (see saturate_to_half).
template <class Real>
Half to_half(Real value) {
  const uint16_t sign = std::signbit(value) ? 0x8000u : 0u;
  const Real magnitude = std::fabs(value);
  if (std::isnan(value)) return {static_cast<uint16_t>(sign | 0x7E00u)};
  if (magnitude >= Real(65520)) return {static_cast<uint16_t>(sign | 0x7C00u)};
  if (magnitude < Real(0x1p-14)) {  // subnormal: a multiple of 2^-24; a carry into the normals is the right pattern
    return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(magnitude * Real(0x1p24))))};
  }
  int exponent = 0;
  const Real fraction = std::frexp(magnitude, &exponent);                              // in [0.5, 1)
  const auto mantissa = static_cast<uint32_t>(std::nearbyint(fraction * Real(2048)));  // in [1024, 2048]
  return {static_cast<uint16_t>(sign | ((static_cast<uint32_t>(exponent + 13) << 10) + mantissa))};
}

// fp16 of a factor: beyond +-65504 it saturates, and the residual absorbs the rest.
template <class Real>
Half saturate_to_half(Real value) {
  if (value > Real(kHalfMax)) return to_half(Real(kHalfMax));
  if (value < Real(-kHalfMax)) return to_half(Real(-kHalfMax));
  return to_half(value);
}

}  // namespace leapquant
