// SPDX-License-Identifier: Apache-2.0
//
// Conversions of the 16-bit types, over every code value and every rounding boundary.
#include "core/numerics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace leapquant {
namespace {

bool is_nan(Half value) { return (value.bits & 0x7C00) == 0x7C00 && (value.bits & 0x3FF) != 0; }

// The value by the definition of binary16.
double half_value(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 0x1F;
  const double mantissa = bits & 0x3FF;
  if (exponent == 31) return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : NAN;
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, EveryCodeDecodesToItsValueAndBack) {
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const Half half{static_cast<uint16_t>(code)};
    const float value = to_float(half);
    if (is_nan(half)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(is_nan(to_half(value)));
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), half_value(half.bits)) << code;
    ASSERT_EQ(to_half(value).bits, half.bits) << code;
    ASSERT_EQ(to_half(static_cast<double>(value)).bits, half.bits) << code;
  }
}

TEST(Half, TiesGoToEvenAndNeighboursToTheNearest) {
  for (uint16_t code = 0; code < 0x7BFF; ++code) {
    const double middle = (half_value(code) + half_value(code + 1)) / 2;
    const auto even = static_cast<uint16_t>(code + (code & 1));
    ASSERT_EQ(to_half(middle).bits, even) << code;
    ASSERT_EQ(to_half(static_cast<float>(middle)).bits, even) << code;
    ASSERT_EQ(to_half(std::nextafter(middle, 0.0)).bits, code) << code;
    ASSERT_EQ(to_half(std::nextafter(middle, 1e9)).bits, code + 1) << code;
  }
}

TEST(Half, RangeEnds) {
  EXPECT_EQ(to_half(65519.0f).bits, 0x7BFF);
  EXPECT_EQ(to_half(65520.0f).bits, 0x7C00);
  EXPECT_EQ(saturate_to_half(65520.0f).bits, 0x7BFF);
  EXPECT_EQ(saturate_to_half(-1e30).bits, 0xFBFF);
  EXPECT_EQ(saturate_to_half(-std::numeric_limits<float>::infinity()).bits, 0xFBFF);
  EXPECT_TRUE(is_nan(saturate_to_half(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(to_half(-0.0f).bits, 0x8000);
}

TEST(Bfloat16, EveryCodeDecodesAndRoundTrips) {
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const Bfloat16 value{static_cast<uint16_t>(code)};
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(to_bfloat16(wide))));
    } else {
      ASSERT_EQ(to_bfloat16(wide).bits, code);
    }
  }
}

TEST(Bfloat16, TiesGoToEven) {
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F808000u)).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F818000u)).bits, 0x3F82);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x3F808001u)).bits, 0x3F81);
  EXPECT_EQ(to_bfloat16(std::bit_cast<float>(0x7F7FFFFFu)).bits, 0x7F80);
}

TEST(Constants, ScaleFloorIsTheContractsBitPattern) { EXPECT_EQ(std::bit_cast<uint32_t>(kScaleFloor), 0x2B8CBCCCu); }

}  // namespace
}  // namespace leapquant
