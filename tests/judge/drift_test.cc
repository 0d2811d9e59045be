// SPDX-License-Identifier: Apache-2.0
//
// The drift measurement: what it compares, and that it can tell states apart.
#include "judge/drift.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "judge/dense_recurrence.h"
#include "judge/drift_tokens.h"

namespace leapquant::judge {
namespace {

constexpr int64_t kTokens = 160;
constexpr int64_t kInterval = 32;

DriftReport report_of(int threads, uint64_t seed = 3) {
  Result<DriftReport> report = measure_drift(
      Context("cpu", 1), {.tokens = kTokens, .interval = kInterval, .seed = seed, .threads = threads}, [](double) {});
  EXPECT_TRUE(report.ok());
  return std::move(report.value());
}

TEST(Drift, TellsTheStatesApart) {
  const DriftReport report = report_of(2);
  EXPECT_EQ(report.positions, (std::vector<int64_t>{32, 64, 96, 128, 160}));
  ASSERT_EQ(report.profiles.size(), 6u);
  for (const DriftProfile& profile : report.profiles) {
    ASSERT_EQ(profile.series.size(), 5u);
    for (size_t t = 0; t < report.positions.size(); ++t) {
      SCOPED_TRACE(profile.name + " at " + std::to_string(report.positions[t]));
      const auto state = [&](size_t n) { return profile.series[n].state_error.at(t); };
      const auto output = [&](size_t n) { return profile.series[n].output_error.at(t); };
      EXPECT_GT(state(1), 0);
      EXPECT_LT(state(1), 1e-5);          // fp32
      EXPECT_GT(state(2), 4 * state(3));  // bf16 has three bits fewer than fp16
      EXPECT_GT(state(4), state(2));      // int8 is the coarsest
      EXPECT_LT(state(0), state(4) / 2);  // leapquant
      EXPECT_GT(state(0), 10 * state(1));
      EXPECT_GT(output(1), 1e-3);  // the rounding of outputs to bf16
      EXPECT_LT(output(1), 2e-3);
      EXPECT_LT(output(0), output(4));
    }
  }
}

TEST(Drift, DependsOnTheSeedAndNotOnThreads) {
  const DriftReport one = report_of(1);
  const DriftReport four = report_of(4);
  const DriftReport other = report_of(2, 4);
  for (size_t p = 0; p < one.profiles.size(); ++p) {
    const bool recorded = one.profiles[p].name == "trained";
    for (size_t n = 0; n < 5; ++n) {
      EXPECT_EQ(one.profiles[p].series[n].state_error, four.profiles[p].series[n].state_error);
      EXPECT_EQ(one.profiles[p].series[n].output_error, four.profiles[p].series[n].output_error);
      // Leapquant's start basis is drawn from the seed as well.
      const bool same = one.profiles[p].series[n].state_error == other.profiles[p].series[n].state_error;
      EXPECT_EQ(same, recorded && n != 0);
    }
  }
}

TEST(Drift, RefusesARunWithoutARecord) {
  const DriftRequest request{.tokens = 10, .interval = 11};
  EXPECT_FALSE(measure_drift(Context("cpu", 1), request, [](double) {}).ok());
}

// The first token on an empty state: S = beta v kn, whatever the gate.
TEST(Drift, TheDenseRecurrenceIsTheFormula) {
  Geometry geometry;
  geometry.num_heads = geometry.num_key_heads = 1;
  DenseRecurrence<double> recurrence(geometry);
  const auto tokens = drawn_tokens(kDriftDraws[0], 5, 0);
  const TokenProgram token = tokens->next();
  const std::vector<double> key = ref::normalized<double>(token.key, 128);
  const double beta = to_float(beta_of(*token.beta_input));
  recurrence.step(token);
  for (int64_t v = 0; v < 128; ++v) {
    for (int64_t k = 0; k < 128; ++k) {
      ASSERT_NEAR(recurrence.state()[static_cast<size_t>(v * 128 + k)],
                  beta * to_float(token.value[v]) * key[static_cast<size_t>(k)], 1e-12);
    }
  }
  // A second one: the state gives the new value for its key to the extent of beta.
  const TokenProgram next = tokens->next();
  std::vector<float> log_decay(128);
  WindowProgram window{};
  window.log_decay = log_decay.data();
  const std::vector<double> decay = ref::step_gates<double>(geometry, {}, next, window).decay;
  const std::vector<double> next_key = ref::normalized<double>(next.key, 128);
  const std::vector<double> before(recurrence.state().begin(), recurrence.state().end());
  recurrence.step(next);
  const double next_beta = to_float(beta_of(*next.beta_input));
  for (int64_t v = 0; v < 128; ++v) {
    double given = 0;
    double now = 0;
    for (int64_t k = 0; k < 128; ++k) {
      const auto i = static_cast<size_t>(v * 128 + k);
      given += before[i] * decay[static_cast<size_t>(k)] * next_key[static_cast<size_t>(k)];
      now += recurrence.state()[i] * next_key[static_cast<size_t>(k)];
    }
    double square = 0;
    for (const double x : next_key) square += x * x;
    ASSERT_NEAR(now, given + next_beta * (to_float(next.value[v]) - given) * square, 1e-9);
  }
}

}  // namespace
}  // namespace leapquant::judge
