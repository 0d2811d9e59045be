// SPDX-License-Identifier: Apache-2.0
//
// The input families: the same numbers everywhere, independent of how they are made, and what they promise to contain.
#include "judge/families.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "fixture.h"
#include "judge/policy.h"
#include "judge/random.h"
#include "judge/structured.h"
#include "judge/trained.h"

namespace leapquant::judge {
namespace {

uint64_t hash_bytes(const std::vector<uint8_t>& bytes) {
  uint64_t hash = 0;
  for (const uint8_t byte : bytes) hash = mix_bits(hash + byte + 1);
  return hash;
}

class EveryFamily : public testing::TestWithParam<Family> {};

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily, testing::ValuesIn(all_families().begin(), all_families().end()),
                         [](const auto& param) { return std::string(family_name(param.param)); });

TEST_P(EveryFamily, NamesParse) {
  const Result<Family> parsed = parse_family(family_name(GetParam()));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value(), GetParam());
}

TEST_P(EveryFamily, AProgramDoesNotDependOnTheBatchSize) {
  EXPECT_EQ(program_bytes(draw(GetParam(), 2, 4), 8), program_bytes(draw(GetParam(), 5, 4), 8));
}

TEST_P(EveryFamily, ThreadsDoNotChangeTheNumbers) {
  const FamilyRequest request{geometry_of(4), GetParam(), 2, 3, 1, ""};
  FamilyRequest threaded = request;
  threaded.threads = 7;
  EXPECT_EQ(program_bytes(make_inputs(request).value(), 8), program_bytes(make_inputs(threaded).value(), 8));
}

TEST_P(EveryFamily, SeedsDiffer) {
  EXPECT_NE(program_bytes(draw(GetParam(), 1, 12, 4, 1), 12), program_bytes(draw(GetParam(), 1, 12, 4, 2), 12));
}

TEST_P(EveryFamily, EveryRankHasTheSameWindows) {
  const FlushInputs low = draw(GetParam(), 1, 12, 1);
  const FlushInputs high = draw(GetParam(), 1, 12, 8);
  EXPECT_EQ(low.window.pcum, high.window.pcum);
  EXPECT_TRUE(std::equal(low.window.ubuf.begin(), low.window.ubuf.end(), high.window.ubuf.begin(),
                         [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; }));
}

TEST_P(EveryFamily, StatesAreFiniteAndInTheDomain) {
  const FlushInputs inputs = draw(GetParam(), 4, 12);
  for (int64_t n = 0; n < inputs.programs(); ++n) {
    for (const double value : rebuilt(inputs, n / 12, n % 12)) ASSERT_LT(std::fabs(value), 1e4) << "program " << n;
  }
  EXPECT_EQ(std::count(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{-128}), 0);
  const auto positive = [](float scale) { return scale > 0; };
  EXPECT_TRUE(std::all_of(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), positive));
  EXPECT_TRUE(std::all_of(inputs.checkpoint.s_v.begin(), inputs.checkpoint.s_v.end(), positive));
}

TEST(Families, SyntheticNumbersAreKnown) {
  EXPECT_EQ(hash_bytes(program_bytes(draw(Family::kStructured, 1, 12), 12)), 9087967731110276885u);
  EXPECT_EQ(hash_bytes(program_bytes(draw(Family::kRandom, 1, 12), 12)), 14612560644438049827u);
}

TEST(Families, UnknownNamesAreRefusedWithTheKnownOnes) {
  const Result<Family> parsed = parse_family("odd");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.status().message().find("structured, second, random, trained"), std::string::npos);
}

TEST(Families, AnEmptyBatchIsRefused) {
  EXPECT_FALSE(make_inputs({geometry_of(4), Family::kRandom, 0, 0, 1, ""}).ok());
}

TEST(Families, TheOtherGateIsRefusedByName) {
  Geometry geometry = geometry_of(4);
  geometry.gate = Gate::kGdn;
  const Result<FlushInputs> inputs = make_inputs({geometry, Family::kTrained, 1, 0, 1, ""});
  ASSERT_FALSE(inputs.ok());
  EXPECT_NE(inputs.status().message().find("gdn"), std::string::npos);
}

TEST(Families, TheStartBasisIsFixedAndItsColumnsKeepTheirPlace) {
  const std::vector<float> low = normal_start_basis(geometry_of(1, 2));
  const std::vector<float> high = normal_start_basis(geometry_of(1, 8));
  for (int64_t v = 0; v < 128; ++v) {
    EXPECT_EQ(low[v * 2], high[v * 8]);
    EXPECT_EQ(low[v * 2 + 1], high[v * 8 + 1]);
  }
}

TEST(Structured, NoEdgeIsLostWithFewHeads) {
  for (const int32_t heads : {1, 4, 8, 12, 16, 24, 32, 48, 64, 96}) {
    std::set<Edge> seen;
    for (int64_t item = 0; item < 16; ++item) {
      for (int64_t head = 0; head < heads; ++head) seen.insert(edge_of(geometry_of(heads), item, head));
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(kEdgeCount)) << heads << " heads";
  }
}

TEST(Structured, ManyHeadsHoldTheEdgesAtTheirIndex) {
  EXPECT_EQ(edge_of(geometry_of(32), 5, 0), Edge::kNone);
  EXPECT_EQ(edge_of(geometry_of(32), 5, 4), Edge::kTiny);
  EXPECT_EQ(edge_of(geometry_of(32), 5, 8), Edge::kUndecayedChannels);
  EXPECT_EQ(edge_of(geometry_of(32), 5, 9), Edge::kNone);
}

double mean_abs_of(const std::vector<double>& state) {
  double sum = 0;
  for (const double value : state) sum += std::fabs(value);
  return sum / static_cast<double>(state.size());
}

TEST(Structured, EdgeHeadsAreWhatTheyAreCalled) {
  const FlushInputs inputs = draw(Family::kStructured, 1, 12);
  const double ordinary = mean_abs_of(rebuilt(inputs, 0, 0));
  EXPECT_EQ(mean_abs_of(rebuilt(inputs, 0, 2)), 0.0);
  EXPECT_LT(mean_abs_of(rebuilt(inputs, 0, 4)), 1e-2 * ordinary);
  EXPECT_GT(mean_abs_of(rebuilt(inputs, 0, 5)), 1e2 * ordinary);
  const float* const weights = inputs.window.w.data();
  EXPECT_EQ(std::count(weights + 16, weights + 32, 1.0f), 1);  // head 1
  EXPECT_EQ(std::count(weights + 48, weights + 64, 1.0f), 2);  // head 3
  EXPECT_LT(inputs.window.pcum[7 * 128], -200.0f);
  EXPECT_EQ(inputs.window.pcum[8 * 128 + 31], 0.0f);
  EXPECT_LT(inputs.window.pcum[8 * 128 + 32], 0.0f);
}

TEST(Structured, NumbersHaveTheirDistributions) {
  const FlushInputs inputs = draw(Family::kStructured, 1, 1);
  double square = 0;
  for (const int8_t code : inputs.checkpoint.codes) square += double(code) * code;
  EXPECT_NEAR(std::sqrt(square / 16384), 40, 1);
  EXPECT_GT(inputs.checkpoint.s_v[5], 0.1f * 30);
  for (const float scale : inputs.checkpoint.s_k) EXPECT_TRUE(scale >= 0.05f && scale <= 0.25f);
  for (int64_t k = 0; k < 128; ++k) {
    double sum = 0;
    for (int64_t j = 0; j < 16; ++j) sum += std::log(to_float(inputs.window.gbuf[j * 128 + k]));
    EXPECT_LE(inputs.window.pcum[k], sum + 1e-5);
    EXPECT_GE(inputs.window.pcum[k], sum - 0.5 - 1e-5);
  }
}

TEST(Second, StartsFromTheReferenceOfTheStructuredInput) {
  const FlushInputs first = draw(Family::kStructured, 1, 12);
  const FlushInputs second = draw(Family::kSecond, 1, 12);
  EXPECT_EQ(reference_flush<float>(first).codes, second.checkpoint.codes);
  EXPECT_NE(first.window.pcum, second.window.pcum);
}

TEST(RandomFamily, NumbersCoverTheirRanges) {
  const FlushInputs inputs = draw(Family::kRandom, 1, 12);
  const auto [low, high] = std::minmax_element(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end());
  EXPECT_EQ(*low, -127);
  EXPECT_EQ(*high, 127);
  const auto [least, most] = std::minmax_element(inputs.window.pcum.begin(), inputs.window.pcum.end());
  EXPECT_GT(*least, -20.0f);
  EXPECT_LT(*least, -19.5f);
  EXPECT_LT(*most, 0.0f);
  for (const Half gate : inputs.window.gbuf) ASSERT_TRUE(to_float(gate) >= 0.00099f && to_float(gate) <= 1.0f);
}

TEST(Trained, GatesAndDecaysAreThoseOfARealModel) {
  const FlushInputs inputs = draw(Family::kTrained, 4, 8);
  EXPECT_LT(*std::min_element(inputs.window.pcum.begin(), inputs.window.pcum.end()), -100.0f);
  EXPECT_LE(*std::max_element(inputs.window.pcum.begin(), inputs.window.pcum.end()), 0.0f);
  for (const Half gate : inputs.window.gbuf) ASSERT_TRUE(to_float(gate) >= 0.0f && to_float(gate) <= 1.0f);
  EXPECT_TRUE(std::any_of(inputs.window.gbuf.begin(), inputs.window.gbuf.end(), [](Half g) { return g.bits == 0; }));
  EXPECT_TRUE(
      std::any_of(inputs.window.gbuf.begin(), inputs.window.gbuf.end(), [](Half g) { return g.bits == kHalfOne; }));
}

TEST(Trained, KeysAreNormalised) {
  const FlushInputs inputs = draw(Family::kTrained, 1, 8);
  for (size_t row = 0; row < inputs.window.kbuf.size() / 128; ++row) {
    double square = 0;
    for (size_t k = 0; k < 128; ++k) square += std::pow(to_float(inputs.window.kbuf[row * 128 + k]), 2);
    ASSERT_NEAR(square, 1, 0.02) << "row " << row;
  }
}

TEST(Trained, StatesGrowOutOfTheZeroState) {
  const FlushInputs inputs = draw(Family::kTrained, 1, 8, 4, 0);  // seed 0: the first starts are token 0
  EXPECT_TRUE(
      std::all_of(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), [](int8_t c) { return c == 0; }));
  EXPECT_EQ(inputs.checkpoint.s_k[0], kScaleFloor);
}

// The recorded trajectory cut down to one sequence, one layer and its first tokens.
Trajectory short_trajectory(int64_t tokens) {
  Result<Trajectory> whole = read_trajectory("");
  EXPECT_TRUE(whole.ok()) << whole.status().message();
  Trajectory cut = std::move(whole.value());
  cut.sequences = 1;
  cut.tokens = tokens;
  cut.layers.resize(1);
  return cut;
}

FlushInputs draw_short(int64_t tokens, int64_t batch) {
  const Geometry geometry = geometry_of(2);
  FlushInputs inputs{geometry, batch, CheckpointTensors(geometry, batch), WindowTensors(geometry, batch),
                     normal_start_basis(geometry)};
  EXPECT_TRUE(draw_trained(short_trajectory(tokens), 0, 2, inputs).ok());
  return inputs;
}

TEST(Trained, AWindowLeadsToTheStateThatFollowsIt) {
  constexpr int64_t kStarts = 64 - 16 + 1;
  const FlushInputs inputs = draw_short(64, kStarts);
  std::vector<int64_t> item_of(kStarts);
  for (int64_t item = 0; item < kStarts; ++item) item_of[trained_start(kStarts, 0, item)] = item;
  for (int64_t start = 0; start + 16 < kStarts; ++start) {
    for (int64_t head = 0; head < 2; ++head) {
      const std::vector<double> after = rebuilt(inputs, item_of[start], head);
      std::vector<double> next = ref::decode(inputs.geometry, inputs.checkpoint.view().at(item_of[start + 16], head));
      for (size_t i = 0; i < next.size(); ++i) next[i] -= after[i];
      EXPECT_LT(mean_abs_of(next), 0.01 * mean_abs_of(after)) << "start " << start << ", head " << head;
    }
  }
}

TEST(Trained, SmallBatchesCoverTheRecording) {
  std::set<int64_t> phases;
  for (int64_t turn = 0; turn < 64; ++turn) phases.insert(trained_start(753, 0, turn) % 16);
  EXPECT_EQ(phases.size(), 16u);
  std::set<int64_t> starts;
  for (int64_t turn = 0; turn < 753; ++turn) starts.insert(trained_start(753, 5, turn));
  EXPECT_EQ(starts.size(), 753u);
}

TEST(Trained, ProgramsComeRoundWhenTheRecordingIsExhausted) {
  const FlushInputs inputs = draw_short(20, 6);  // 5 starts
  const CheckpointView view = inputs.checkpoint.view();
  const auto same_codes = [&](int64_t a, int64_t b) {
    return std::equal(view.at(a, 1).codes, view.at(a, 1).codes + 16384, view.at(b, 1).codes);
  };
  EXPECT_TRUE(same_codes(0, 5));
  EXPECT_FALSE(same_codes(0, 4));
}

TEST(Trained, AMissingRecordingIsNamed) {
  const Result<FlushInputs> inputs = make_inputs({geometry_of(1), Family::kTrained, 1, 0, 1, "/nonexistent"});
  ASSERT_FALSE(inputs.ok());
  EXPECT_NE(inputs.status().message().find("/nonexistent/kda_trajectory.safetensors"), std::string::npos);
}

TEST(Policy, EveryCaseOccursInASmallBatch) {
  for (const int32_t heads : {1, 4, 32}) {
    std::set<int64_t> seen;
    for (int64_t item = 0; item < 32; ++item) {
      for (int64_t head = 0; head < heads; ++head) seen.insert(policy_case_of(geometry_of(heads), item, head));
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(policy_case_count()));
  }
}

TEST(Policy, TheStartBasisIsOrthonormal) {
  const Geometry geometry = geometry_of(1, 8);
  const std::vector<float> basis = orthonormal_start_basis(geometry, 5);
  for (int64_t a = 0; a < 8; ++a) {
    for (int64_t b = 0; b < 8; ++b) {
      double product = 0;
      for (int64_t v = 0; v < 128; ++v) product += double(basis[v * 8 + a]) * basis[v * 8 + b];
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-6);
    }
  }
}

}  // namespace
}  // namespace leapquant::judge
