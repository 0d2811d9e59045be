// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of the input families. Everything here uses only operations that IEEE 754 rounds exactly, so a seed
// gives the same bits with every compiler and standard library, and a program's numbers depend on its own key alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace leapquant::judge {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that looks random.
inline uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline uint64_t hash_words(std::initializer_list<uint64_t> words) {
  uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const uint64_t word : words) hash = mix_bits(hash + mix_bits(word + 0x9E3779B97F4A7C15u));
  return hash;
}

// ln x of a positive normal x, to about 1e-16 relative: x = m 2^e with m in [sqrt(1/2), sqrt(2)), and
// ln m = 2 atanh((m - 1) / (m + 1)) by its series.
inline double portable_log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000FFFFFFFFFFFFFu) | 0x3FF0000000000000u;
  double mantissa = std::bit_cast<double>(bits);
  if (mantissa > 1.41421356237309504880) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double series = 0;
  for (int odd = 21; odd >= 1; odd -= 2) series = series * square + 1.0 / odd;
  return static_cast<double>(exponent) * kLn2 + 2 * s * series;
}

// e^x for x in about [-700, 700], 0 below: x = n ln 2 + r, and e^r by its Taylor series.
inline double portable_exp(double x) {
  if (x < -700) return 0;
  constexpr double kLn2High = 0x1.62e42feep-1;  // n times it is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  const double n = std::nearbyint(x * 1.44269504088896340736);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double series = 1;
  for (int term = 15; term >= 1; --term) series = 1 + series * r / term;
  return std::ldexp(series, static_cast<int>(n));
}

// The quantile function of the normal distribution at p in [2^-33, 1 - 2^-33], to about 1e-7: algorithm AS 241, PPND7
// (Wichura 1988), without its branch for p below 1.4e-11, which 32-bit uniforms never reach.
inline double normal_quantile(double p) {
  const double centered = p - 0.5;
  if (std::fabs(centered) <= 0.425) {
    const double r = 0.180625 - centered * centered;
    return centered * (((59.109374720 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179) /
           (((67.187563600 * r + 78.757757664) * r + 17.895169469) * r + 1);
  }
  const double r = std::sqrt(-portable_log(centered < 0 ? p : 1 - p)) - 1.6;
  const double magnitude = (((0.17023821103 * r + 1.3067284816) * r + 2.7568153900) * r + 1.4234372777) /
                           ((0.12021132975 * r + 0.73700164250) * r + 1);
  return centered < 0 ? -magnitude : magnitude;
}

// SplitMix64: number n of a stream is the mixed sum of its key and n times the golden ratio.
class RandomStream {
 public:
  explicit RandomStream(std::initializer_list<uint64_t> key) : state_(hash_words(key)) {}

  uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15u;
    return mix_bits(state_);
  }

  // In (0, 1): the middle of one of 2^32 equal intervals.
  double uniform() { return (static_cast<double>(bits() >> 32) + 0.5) * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  double normal() { return normal_quantile(uniform()); }

 private:
  uint64_t state_;
};

}  // namespace leapquant::judge
