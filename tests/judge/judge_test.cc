// SPDX-License-Identifier: Apache-2.0
//
// The judge: right results pass, wrong ones fail, and one bad program is not lost in an average.
#include "judge/judge.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "fixture.h"
#include "judge/policy.h"

namespace leapquant::judge {
namespace {

Judgement judged(const FlushInputs& inputs, const CheckpointTensors& result) {
  return judge_flush(inputs, result.view(), 2);
}

class JudgedFamily : public testing::TestWithParam<Family> {};

INSTANTIATE_TEST_SUITE_P(Families, JudgedFamily, testing::ValuesIn(all_families().begin(), all_families().end()),
                         [](const auto& param) { return std::string(family_name(param.param)); });

TEST_P(JudgedFamily, BothReferencesPass) {
  for (const int32_t rank : {1, 2, 4, 8}) {
    const FlushInputs inputs = draw(GetParam(), 2, 12, rank);
    for (const Judgement& judgement :
         {judged(inputs, reference_flush<float>(inputs)), judged(inputs, reference_flush<double>(inputs))}) {
      EXPECT_TRUE(judgement.passes()) << "rank " << rank << ", program " << judgement.worst_program;
      EXPECT_TRUE(judgement.finite);
      EXPECT_EQ(judgement.averaged_over, 0);
      EXPECT_EQ(judgement.programs, 24);
      EXPECT_LT(judgement.worst_ratio, 1.005);
    }
  }
}

TEST_P(JudgedFamily, ThreadsDoNotChangeTheVerdict) {
  const FlushInputs inputs = draw(GetParam(), 1, 12);
  const CheckpointTensors result = reference_flush<float>(inputs);
  const Judgement one = judge_flush(inputs, result.view(), 1);
  const Judgement many = judge_flush(inputs, result.view(), 7);
  EXPECT_EQ(one.worst_ratio, many.worst_ratio);
  EXPECT_EQ(one.worst_absolute, many.worst_absolute);
  EXPECT_EQ(one.averaged_ratio, many.averaged_ratio);
  EXPECT_EQ(one.worst_program, many.worst_program);
}

struct Fault {
  const char* name;
  bool finite;
  std::function<void(CheckpointTensors&)> apply;
};

// Faults in program 0 of 12, an ordinary head.
const Fault kFaults[] = {
    {"OneWrongCode", true,
     [](CheckpointTensors& t) { t.codes[77 * 128 + 3] = t.codes[77 * 128 + 3] > 0 ? -127 : 127; }},
    {"TruncatedCodes", true,
     [](CheckpointTensors& t) {
       for (int i = 0; i < 16384; ++i)
         t.codes[i] = static_cast<int8_t>(t.codes[i] - (t.codes[i] > 0) + (t.codes[i] < 0));
     }},
    {"ShiftedCodes", true, [](CheckpointTensors& t) { std::rotate(&t.codes[0], &t.codes[1], &t.codes[16384]); }},
    {"SwappedScales", true, [](CheckpointTensors& t) { std::swap_ranges(&t.s_k[0], &t.s_k[128], &t.s_v[0]); }},
    {"LargerKeyScale", true, [](CheckpointTensors& t) { t.s_k[9] *= 1.05f; }},
    {"DroppedFactor", true, [](CheckpointTensors& t) { std::fill_n(&t.u[0], 128, Half{0}); }},
    {"SwappedFactorRows", true, [](CheckpointTensors& t) { std::swap_ranges(&t.u[0], &t.u[128], &t.u[128]); }},
    {"SwappedFactorSides", true, [](CheckpointTensors& t) { std::swap_ranges(&t.u[0], &t.u[512], &t.q[0]); }},
    {"NextHeadsCodes", true, [](CheckpointTensors& t) { std::copy_n(&t.codes[16384], 16384, &t.codes[0]); }},
    {"CodeOutOfRange", false, [](CheckpointTensors& t) { t.codes[5] = -128; }},
    {"ScaleNaN", false, [](CheckpointTensors& t) { t.s_v[4] = std::numeric_limits<float>::quiet_NaN(); }},
    {"ScaleInfinite", false, [](CheckpointTensors& t) { t.s_k[4] = std::numeric_limits<float>::infinity(); }},
    {"ScaleZero", false, [](CheckpointTensors& t) { t.s_k[4] = 0; }},
    {"FactorNaN", false, [](CheckpointTensors& t) { t.q[4] = Half{0x7E00u}; }},
    {"FactorInfinite", false, [](CheckpointTensors& t) { t.u[4] = Half{0x7C00u}; }},
    {"NothingWritten", false,
     [](CheckpointTensors& t) {
       std::fill_n(&t.codes[0], 16384, int8_t{0});
       std::fill_n(&t.s_k[0], 128, 0.0f);
       std::fill_n(&t.s_v[0], 128, 0.0f);
     }},
};

class EveryFault : public testing::TestWithParam<Fault> {};

INSTANTIATE_TEST_SUITE_P(Faults, EveryFault, testing::ValuesIn(kFaults),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(EveryFault, FailsExactlyTheProgramThatHasIt) {
  const FlushInputs inputs = draw(Family::kStructured, 1, 12);
  CheckpointTensors result = reference_flush<float>(inputs);
  GetParam().apply(result);
  const Judgement judgement = judged(inputs, result);
  EXPECT_EQ(judgement.over, 1);
  EXPECT_FALSE(judgement.passes());
  EXPECT_EQ(judgement.worst_program, 0);
  EXPECT_EQ(judgement.finite, GetParam().finite);
  EXPECT_GT(judgement.worst_ratio, kRelativeBound);
}

struct Misreading {
  const char* name;
  std::function<void(FlushInputs&)> apply;
};

// Flushes that read their input wrongly: each is the reference's flush of the input that it believes to see.
const Misreading kMisreadings[] = {
    {"LastGateLost", [](FlushInputs& in) { std::fill_n(&in.window.gbuf[15 * 128], 128, Half{kHalfOne}); }},
    {"FirstGateTaken",
     [](FlushInputs& in) { std::rotate(&in.window.gbuf[0], &in.window.gbuf[15 * 128], &in.window.gbuf[2048]); }},
    {"LogDecayLost", [](FlushInputs& in) { std::fill_n(&in.window.pcum[0], 128, 0.0f); }},
    {"WeightsLost", [](FlushInputs& in) { std::fill_n(&in.window.w[0], 16, 1.0f); }},
    {"LastEntryLost", [](FlushInputs& in) { in.window.w[15] = 0; }},
    {"CheckpointLost", [](FlushInputs& in) { std::fill_n(&in.checkpoint.codes[0], 16384, int8_t{0}); }},
    {"FactorsLost", [](FlushInputs& in) { std::fill_n(&in.checkpoint.q[0], 512, Half{0}); }},
    {"NextHeadsWindow", [](FlushInputs& in) { std::copy_n(&in.window.ubuf[2048], 2048, &in.window.ubuf[0]); }},
    {"KeysAndUpdatesSwapped",
     [](FlushInputs& in) { std::swap_ranges(&in.window.kbuf[0], &in.window.kbuf[2048], &in.window.ubuf[0]); }},
};

class EveryMisreading : public testing::TestWithParam<Misreading> {};

INSTANTIATE_TEST_SUITE_P(Misreadings, EveryMisreading, testing::ValuesIn(kMisreadings),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_P(EveryMisreading, FailsExactlyTheProgramThatHasIt) {
  const FlushInputs inputs = draw(Family::kRandom, 1, 4);
  FlushInputs misread = inputs;
  GetParam().apply(misread);
  const Judgement judgement = judged(inputs, reference_flush<float>(misread));
  EXPECT_EQ(judgement.over, 1);
  EXPECT_EQ(judgement.worst_program, 0);
}

TEST(Judge, AHeadOfZerosAllowsNoErrorAtAll) {
  const FlushInputs inputs = draw(Family::kStructured, 1, 12);
  CheckpointTensors result = reference_flush<float>(inputs);
  result.codes[2 * 16384] = 1;
  const Judgement judgement = judged(inputs, result);
  EXPECT_EQ(judgement.over, 1);
  EXPECT_EQ(judgement.worst_program, 2);
  EXPECT_TRUE(std::isinf(judgement.worst_absolute));
}

TEST(Judge, StateThatIsNoNumberFailsItsOwnProgramOnly) {
  FlushInputs inputs = draw(Family::kRandom, 1, 4);
  inputs.window.ubuf[16 * 128] = to_bfloat16(std::numeric_limits<float>::quiet_NaN());  // head 1
  const Judgement judgement = judged(inputs, reference_flush<float>(inputs));
  EXPECT_EQ(judgement.over, 1);
  EXPECT_EQ(judgement.worst_program, 1);
}

Score score(double error, double reference_error, double mean_abs) {
  return {.well_formed = true, .mean_abs = mean_abs, .error = error, .reference_error = reference_error};
}

TEST(Rule, TheRelativeBoundBeginsAtATenThousandthOfTheMean) {
  EXPECT_TRUE(score(1.0099e-4, 1.0e-4, 1).passes());
  EXPECT_FALSE(score(1.0101e-4, 1.0e-4, 1).passes());
  EXPECT_TRUE(score(0.9999e-3, 0.99e-4, 1).passes());
  EXPECT_FALSE(score(1.0001e-3, 0.99e-4, 1).passes());
}

TEST(Rule, AnExactReferenceLeavesTheAbsoluteBound) {
  EXPECT_TRUE(score(1e-3, 0, 1).passes());
  EXPECT_TRUE(score(0, 0, 0).passes());
  EXPECT_FALSE(score(1e-30, 0, 0).passes());
}

TEST(Rule, NumbersThatAreNoneNeverPass) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(score(nan, 1, 1).passes());
  EXPECT_FALSE(score(1, nan, 1).passes());
  EXPECT_FALSE(score(1, 1, nan).passes());
  EXPECT_FALSE(score(1, 0, nan).passes());
}

RC_GTEST_PROP(Rule, MoreErrorNeverTurnsAFailureIntoAPass, (uint32_t e, uint32_t more, uint32_t r, uint32_t m)) {
  const auto unit = [](uint32_t bits) { return bits * 0x1p-32; };
  const Score less = score(unit(e), unit(r), unit(m) * 1e4);
  const Score worse = score(unit(e) + unit(more), unit(r), unit(m) * 1e4);
  RC_ASSERT(less.passes() || !worse.passes());
}

TEST(Summary, OneBadProgramIsHiddenInTheAverageAndFoundByTheStrictRule) {
  std::vector<Score> scores(64 * 2, score(1, 1, 10));
  scores[2 * 17 + 1].error = 1.2;
  const Judgement judgement = summarize(scores, 2);
  EXPECT_EQ(judgement.over, 1);
  EXPECT_EQ(judgement.worst_program, 35);
  EXPECT_DOUBLE_EQ(judgement.worst_ratio, 1.2);
  EXPECT_EQ(judgement.averaged_over, 0);
  EXPECT_NEAR(judgement.averaged_ratio, 1 + 0.2 / 64, 1e-12);
}

TEST(Summary, RunsAreJudgedTogether) {
  Judgement all;
  include(all, {.programs = 4, .worst_ratio = 1.005, .worst_program = 2, .worst_seed = 7, .averaged_ratio = 1.004});
  include(all, {.programs = 6,
                .over = 2,
                .finite = false,
                .worst_ratio = 1.5,
                .worst_absolute = 0.5,
                .worst_program = 3,
                .worst_seed = 8,
                .averaged_ratio = 1.001,
                .averaged_over = 1});
  include(all, {.programs = 5, .worst_ratio = 1.001, .worst_absolute = 0.9, .worst_program = 1, .worst_seed = 9});
  EXPECT_EQ(all.programs, 15);
  EXPECT_EQ(all.over, 2);
  EXPECT_FALSE(all.finite);
  EXPECT_FALSE(all.passes());
  EXPECT_EQ(all.worst_ratio, 1.5);
  EXPECT_EQ(all.worst_absolute, 0.9);
  EXPECT_EQ(all.worst_program, 3);
  EXPECT_EQ(all.worst_seed, 8u);
  EXPECT_EQ(all.averaged_ratio, 1.004);
  EXPECT_EQ(all.averaged_over, 1);
}

TEST(Summary, RatiosOfTheTwoRegimesAreKeptApart) {
  const std::vector<Score> scores = {score(1.001, 1, 10), score(5e-4, 1e-9, 1)};
  const Judgement judgement = summarize(scores, 2);
  EXPECT_DOUBLE_EQ(judgement.worst_ratio, 1.001);
  EXPECT_DOUBLE_EQ(judgement.worst_absolute, 0.5);
  EXPECT_TRUE(judgement.passes());
}

}  // namespace
}  // namespace leapquant::judge
