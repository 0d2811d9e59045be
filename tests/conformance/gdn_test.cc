// SPDX-License-Identifier: Apache-2.0
//
// The scalar gate: what differs from the other gate's tests is the decay.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends.h"
#include "mirrors.h"

namespace leapquant::conformance {
namespace {

using GdnTest = BackendTest;

// The judge is slow under sanitizers: see accuracy_test.cc.
TEST_P(GdnTest, EveryFamilyAndRankKeepsTheBound) {
  for (const judge::Family family :
       {judge::Family::kStructured, judge::Family::kSecond, judge::Family::kRandom, judge::Family::kPolicy}) {
    for (const int32_t rank : {1, 2, 4, 8})
      expect_within_bound(context(2), family, gdn_geometry(8, rank), kFamilyBatch);
  }
}

TEST_P(GdnTest, SharedKeyHeadsChangeNothingForTheFlush) {
  const judge::FlushInputs own = inputs_of(judge::Family::kRandom, gdn_geometry(32), 1);
  judge::FlushInputs shared = own;
  shared.geometry.num_key_heads = shared.checkpoint.geometry.num_key_heads = 16;
  shared.window.geometry.num_key_heads = 16;
  EXPECT_EQ(bytes_of(flush_or_die(context(), own)), bytes_of(flush_or_die(context(), shared)));
  expect_within_bound(context(), judge::Family::kStructured, gdn_geometry(64, 4, 16), 1);
}

// A state that the window leaves alone is p times the checkpoint's, whatever p is.
TEST_P(GdnTest, TheCheckpointDecaysByP) {
  for (const float p : {0.0f, 2e-41f, 1e-30f, 0.25f, 1.0f}) {
    judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, gdn_geometry(1), 1);
    std::fill(inputs.window.w.begin(), inputs.window.w.end(), 0.0f);
    inputs.window.p = {p};
    const judge::CheckpointTensors result = flush_or_die(context(), inputs);
    for (const float scale : result.s_k) ASSERT_TRUE(std::isfinite(scale)) << "p " << p;
    EXPECT_TRUE(judge::judge_flush(inputs, result.view(), 1).passes()) << "p " << p;
    if (p == 0.0f) {
      for (const int8_t code : result.codes) ASSERT_EQ(code, 0);
    }
  }
}

TEST_P(GdnTest, WeightsAreWhatTheWindowDecaysBy) {
  judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, gdn_geometry(1), 2);
  inputs = item_of(inputs, 1);
  judge::FlushInputs halved = inputs;
  for (float& w : halved.window.w) w *= 0.5f;
  halved.window.p[0] *= 0.5f;
  const judge::CheckpointTensors whole = flush_or_die(context(), inputs);
  const judge::CheckpointTensors half = flush_or_die(context(), halved);
  // Half the state: the same directions.
  EXPECT_EQ(std::memcmp(whole.q.data(), half.q.data(), whole.q.size() * sizeof(Half)), 0);
  for (size_t k = 0; k < whole.s_v.size(); ++k)
    EXPECT_NEAR(half.s_v[k], whole.s_v[k] / std::sqrt(2.0f), 1e-3f * whole.s_v[k]);
}

TEST_P(GdnTest, InPlaceTheFunctionalBitsAndAnEmptyWindow) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, gdn_geometry(4), 2);
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool pool = filled_pool(context(2), inputs, 4, layout);
    pool.counter(2, 1) = 5;
    pool.flush({1, 2, 0, -1}, inputs);
    const judge::CheckpointTensors expected = flush_or_die(context(), inputs);
    const judge::CheckpointTensors slots = judge::read_slots(pool.host(), inputs.geometry, std::vector<int32_t>{1, 2});
    for (int64_t n = 0; n < 8; ++n) {
      const bool due = n != 5;
      const auto* codes = due ? &expected.codes : &inputs.checkpoint.codes;
      EXPECT_TRUE(
          std::equal(codes->begin() + n * 16384, codes->begin() + (n + 1) * 16384, slots.codes.begin() + n * 16384))
          << "program " << n;
      const int64_t program = 4 + n;  // slot 0 comes first
      const float p = static_cast<const float*>(pool.host().p.data)[program];
      const float w = static_cast<const float*>(pool.host().w.data)[program * 16 + 3];
      EXPECT_EQ(p, due ? 1.0f : inputs.window.p[static_cast<size_t>(n)]);
      EXPECT_EQ(w, due ? 0.0f : inputs.window.w[static_cast<size_t>(n) * 16 + 3]);
    }
  }
}

TEST_P(GdnTest, TheSameBitsForAnyThreadsAndPlace) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, gdn_geometry(12), 3);
  const auto expected = bytes_of(flush_or_die(context(1), inputs));
  EXPECT_EQ(bytes_of(flush_or_die(context(2), inputs)), expected);
  const judge::CheckpointTensors alone = flush_or_die(context(1), item_of(inputs, 2));
  const judge::CheckpointTensors all = flush_or_die(context(1), inputs);
  EXPECT_TRUE(std::equal(alone.codes.begin(), alone.codes.end(), all.codes.end() - std::ssize(alone.codes)));
}

TEST_P(GdnTest, ANonFiniteDecayStaysInItsProgram) {
  const judge::FlushInputs clean = inputs_of(judge::Family::kRandom, gdn_geometry(5), 3);
  const judge::CheckpointTensors expected = flush_or_die(context(), clean);
  judge::FlushInputs dirty = clean;
  dirty.window.p[7] = std::numeric_limits<float>::quiet_NaN();
  judge::CheckpointTensors result = flush_or_die(context(), dirty);
  for (const int8_t code : result.codes) ASSERT_GE(code, -127);
  EXPECT_FALSE(std::isfinite(result.s_k[7 * 128]));
  copy_program(expected, 7, result);
  EXPECT_EQ(bytes_of(result), bytes_of(expected));
}

// The tensors of the other gate: refused by name, and nothing is touched.
TEST_P(GdnTest, NamesTheTensorThatIsMissing) {
  const Context backend = context();
  FlushCall call(backend, inputs_of(judge::Family::kRandom, geometry_of(2), 1));
  const auto before = bytes_of(call.output);
  call.geometry.gate = LQ_GATE_GDN;
  EXPECT_EQ(call.run(backend), LQ_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lq_last_error()).find("'p'"), std::string::npos) << lq_last_error();
  EXPECT_EQ(bytes_of(call.output), before);
}

LQ_FOR_ALL_BACKENDS(GdnTest);

}  // namespace
}  // namespace leapquant::conformance
