// SPDX-License-Identifier: Apache-2.0
//
// The random numbers of the families: exact values, so that every platform agrees, and the right distributions.
#include "judge/random.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace leapquant::judge {
namespace {

TEST(Random, StreamsHaveKnownNumbers) {
  RandomStream stream({1, 2, 3});
  EXPECT_EQ(stream.bits(), 16480744054536427527u);
  EXPECT_EQ(stream.bits(), 8347563575931612793u);
}

TEST(Random, MixingIsThatOfSplitMix64) { EXPECT_EQ(mix_bits(0x9E3779B97F4A7C15u), 0xE220A8397B1DCDAFu); }

TEST(Random, KeysThatDifferInOneWordGiveUnrelatedStreams) {
  RandomStream a({1, 2, 3});
  RandomStream b({1, 3, 2});
  int equal_bits = 0;
  for (int i = 0; i < 1000; ++i) equal_bits += std::popcount(~(a.bits() ^ b.bits()));
  EXPECT_NEAR(equal_bits, 32000, 1000);
}

TEST(Random, LogMatchesTheMathsLibrary) {
  for (double x = 1e-12; x < 1e12; x *= 1.37)
    EXPECT_NEAR(portable_log(x), std::log(x), 1e-15 * (1 + std::fabs(std::log(x))));
  EXPECT_EQ(portable_log(1.0), 0.0);
}

TEST(Random, ExpMatchesTheMathsLibrary) {
  for (double x = -690; x < 690; x += 0.731) EXPECT_NEAR(portable_exp(x) / std::exp(x), 1.0, 1e-15);
  EXPECT_EQ(portable_exp(0), 1.0);
  EXPECT_EQ(portable_exp(-1e4), 0.0);
}

RC_GTEST_PROP(Random, NormalQuantileInvertsTheDistribution, (uint32_t bits)) {
  const double p = (bits + 0.5) * 0x1p-32;
  const double z = normal_quantile(p);
  const double back = 0.5 * std::erfc(-z / std::sqrt(2.0));
  RC_ASSERT(std::fabs(back - p) <= 1e-6 * std::min(p, 1 - p) * (1 + z * z));
}

TEST(Random, NormalsHaveTheirMoments) {
  RandomStream stream({7});
  constexpr int kCount = 400000;
  double moment[5] = {};
  for (int i = 0; i < kCount; ++i) {
    const double z = stream.normal();
    for (int n = 1; n <= 4; ++n) moment[n] += std::pow(z, n) / kCount;
  }
  EXPECT_NEAR(moment[1], 0, 0.008);
  EXPECT_NEAR(moment[2], 1, 0.012);
  EXPECT_NEAR(moment[3], 0, 0.03);
  EXPECT_NEAR(moment[4], 3, 0.08);
}

}  // namespace
}  // namespace leapquant::judge
