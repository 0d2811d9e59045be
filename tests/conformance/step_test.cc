// SPDX-License-Identifier: Apache-2.0
//
// The step in the functional form: accuracy over every geometry, exact cases, and the same bits however it is called.
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cmath>
#include <functional>
#include <limits>

#include "step_calls.h"

namespace leapquant::conformance {
namespace {

using StepTest = BackendTest;

TEST_P(StepTest, EveryHeadCountAndRankIsAccurate) {
  const Context backend = context(2);
  for (const int32_t heads : kHeadCounts) {
    for (const int32_t rank : {1, 2, 4, 8}) {
      expect_within_bound(backend, step_inputs_of(judge::StepFamily::kStructured, geometry_of(heads, rank), 1));
    }
  }
}

TEST_P(StepTest, EveryFamilyAndGateIsAccurate) {
  const Context backend = context(2);
  for (const judge::StepFamily family : judge::all_step_families()) {
    for (const GateFunction gate : judge::all_gate_functions()) {
      for (const int32_t rank : {1, 2, 4, 8}) {
        expect_within_bound(backend, step_inputs_of(family, geometry_of(8, rank), 3, gate));
      }
    }
  }
}

TEST_P(StepTest, TheLargestBatchIsAccurate) {
  expect_within_bound(context(2), step_inputs_of(judge::StepFamily::kRandom, geometry_of(1), kLargestBatch));
}

TEST_P(StepTest, EveryFillIsAccurate) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(16), 1);
  for (int32_t entries = 0; entries < 16; ++entries) inputs.h[static_cast<size_t>(entries)] = entries;
  expect_within_bound(context(), inputs);
}

TEST_P(StepTest, OtherLowerBounds) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(4), 1, GateFunction::kBounded);
  for (const float lower_bound : {-0.125f, -20.0f}) {
    inputs.gate.lower_bound = lower_bound;
    expect_within_bound(context(), inputs);
  }
}

// Gates and log-decays that real models reach, and the ends of exp and softplus.
TEST_P(StepTest, ExtremeGatesAreAccurate) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(4), 1);
  const float inputs_of_channel[] = {-300, -90, -20, -1e-3f, 0, 1e-3f, 19.99f, 20, 20.01f, 88, 110, 3e4f};
  for (size_t i = 0; i < inputs.token.a.size(); ++i) {
    inputs.token.a[i] = to_bfloat16(inputs_of_channel[i % std::size(inputs_of_channel)]);
    inputs.token.dt_bias[i] = 0;
  }
  const float decays[] = {0, -1e-8f, -50, -87, -100, -103.9f, -200, -1000};
  for (size_t i = 0; i < inputs.window.pcum.size(); ++i) inputs.window.pcum[i] = decays[i / 7 % std::size(decays)];
  expect_within_bound(context(), inputs);
  inputs.gate.function = GateFunction::kBounded;
  expect_within_bound(context(), inputs);
}

// A row that sees one channel alone is as accurate when the others are louder by any number of magnitudes.
TEST_P(StepTest, ARowIsAccurateBesideLouderChannels) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(6), 1);
  std::fill(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{0});
  std::fill(inputs.checkpoint.q.begin(), inputs.checkpoint.q.end(), Half{0});
  std::fill(inputs.token.vx.begin(), inputs.token.vx.end(), Bfloat16{0});
  std::fill(inputs.h.begin(), inputs.h.end(), 0);
  const float slopes[] = {0, 0.1f, 0.18f, 0.2f, 0.4f, 0.6f};  // of the log-decay over the channels
  for (int64_t head = 0; head < 6; ++head) {
    for (int64_t v = 0; v < 128; ++v) {
      inputs.checkpoint.codes[(head * 128 + v) * 128 + v] =
          static_cast<int8_t>(v % 2 == 0 ? 1 + v % 127 : -128 + v % 127);
      inputs.window.pcum[head * 128 + v] = -slopes[head] * static_cast<float>(v);
    }
  }
  inputs.token.kx[5] = inputs.token.qx[130] = Bfloat16{0};
  expect_within_bound(context(), inputs);
}

// ---- exact cases ---------------------------------------------------------------------------------------------------

// One program: a zero state, an empty window, gates of 1, key and query along channel 0 with a norm of 2^20, beta 0.
judge::StepInputs blank_step() {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(1, 1), 1, GateFunction::kGiven);
  const Geometry geometry = inputs.geometry;
  inputs.checkpoint = judge::CheckpointTensors(geometry, 1);
  inputs.window = judge::WindowTensors(geometry, 1);
  std::fill(inputs.window.gbuf.begin(), inputs.window.gbuf.end(), Half{kHalfOne});
  inputs.h[0] = 0;
  inputs.token = judge::TokenTensors(geometry, 1);
  inputs.token.qx[0] = inputs.token.kx[0] = to_bfloat16(0x1p20f);
  inputs.token.b[0] = to_bfloat16(-std::numeric_limits<float>::infinity());
  return inputs;
}

const float kQuery = 1 / std::sqrt(128.0f);  // channel 0 of the normalised query

void set_flat_scales(judge::StepInputs& inputs) {
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 127.0f);
  std::fill(inputs.checkpoint.s_v.begin(), inputs.checkpoint.s_v.end(), 1.0f);
}

TEST_P(StepTest, AZeroStateGivesItsValueBack) {
  judge::StepInputs inputs = blank_step();
  inputs.token.b[0] = to_bfloat16(100);  // beta 1
  for (int v = 0; v < 128; ++v) inputs.token.vx[v] = to_bfloat16(static_cast<float>(v - 64));
  const judge::StepTensors result = step_or_die(context(), inputs);
  for (int v = 0; v < 128; ++v) {
    EXPECT_EQ(to_float(result.u_row[v]), static_cast<float>(v - 64));
    EXPECT_EQ(result.o[v].bits, to_bfloat16(static_cast<float>(v - 64) * kQuery).bits) << v;
    EXPECT_EQ(result.k_row[v].bits, v == 0 ? 0x3F80 : 0);
    EXPECT_EQ(result.g_row[v].bits, kHalfOne);
    EXPECT_EQ(result.pcum_new[v], 0.0f);
  }
  EXPECT_EQ(result.w_new[0], 1.0f);
  for (int j = 1; j < 16; ++j) EXPECT_EQ(result.w_new[j], 0.0f);
}

TEST_P(StepTest, CodesAreReadAsTheyStand) {
  judge::StepInputs inputs = blank_step();
  set_flat_scales(inputs);
  for (int v = 0; v < 128; ++v) inputs.checkpoint.codes[v * 128] = static_cast<int8_t>(v - 128);
  judge::StepTensors result = step_or_die(context(), inputs);
  for (int v = 0; v < 128; ++v) {
    EXPECT_EQ(result.o[v].bits, to_bfloat16(static_cast<float>(v - 128) * kQuery).bits) << v;
  }
  EXPECT_EQ(to_float(result.o[0]), to_float(to_bfloat16(-128 * kQuery)));
  // beta 1: the update takes away what the state says of the key.
  inputs.token.b[0] = to_bfloat16(100);
  result = step_or_die(context(), inputs);
  for (int v = 0; v < 128; ++v) EXPECT_EQ(to_float(result.u_row[v]), static_cast<float>(128 - v));
}

TEST_P(StepTest, FactorsAreRead) {
  judge::StepInputs inputs = blank_step();
  inputs.checkpoint.u[0] = to_half(2.0f);
  inputs.checkpoint.q[3] = to_half(8.0f);
  const judge::StepTensors result = step_or_die(context(), inputs);
  for (int v = 0; v < 128; ++v) EXPECT_EQ(result.o[v].bits, v == 3 ? to_bfloat16(16 * kQuery).bits : 0) << v;
}

// Three entries along key channel 0 whose updates mark rows 0 to 2: the decay of each is the product of the gates after
// it and of the token's own; weights count; entries from h on, NaN all of them, don't.
TEST_P(StepTest, AnEntryDecaysByTheGatesAfterIt) {
  judge::StepInputs inputs = blank_step();
  inputs.h[0] = 3;
  std::fill(inputs.token.log_gate.begin(), inputs.token.log_gate.end(), std::log(0.5f));
  std::fill(inputs.window.pcum.begin(), inputs.window.pcum.end(), -3.0f);
  const float gates[] = {0.25f, 0.125f, 0.5f};
  const float weights[] = {1, 0.5f, 1};
  for (int j = 0; j < 3; ++j) {
    inputs.window.w[j] = weights[j];
    inputs.window.kbuf[j * 128] = to_bfloat16(1);
    inputs.window.ubuf[j * 128 + j] = to_bfloat16(64);
    inputs.window.gbuf[j * 128] = to_half(gates[j]);
  }
  std::fill(inputs.window.kbuf.begin() + 3 * 128, inputs.window.kbuf.end(), Bfloat16{0x7FC0});
  std::fill(inputs.window.ubuf.begin() + 3 * 128, inputs.window.ubuf.end(), Bfloat16{0x7FC0});
  std::fill(inputs.window.gbuf.begin() + 3 * 128, inputs.window.gbuf.end(), Half{0x7E00});
  const judge::StepTensors result = step_or_die(context(), inputs);
  const float decay = 0.5f;
  const float rows[] = {64 * decay * 0.5f * 0.125f, 64 * 0.5f * decay * 0.5f, 64 * decay};
  for (int v = 0; v < 128; ++v) EXPECT_EQ(result.o[v].bits, v < 3 ? to_bfloat16(rows[v] * kQuery).bits : 0) << v;
  for (int k = 0; k < 128; ++k) {
    EXPECT_EQ(result.g_row[k].bits, 0x3800);
    EXPECT_EQ(result.pcum_new[k], -3.0f + std::log(0.5f));
  }
  EXPECT_EQ(result.w_new[1], 0.5f);
  EXPECT_EQ(result.w_new[3], 1.0f);
}

TEST_P(StepTest, AGateOfZeroForgets) {
  judge::StepInputs inputs = blank_step();
  set_flat_scales(inputs);
  std::fill(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{100});
  inputs.h[0] = 1;
  inputs.window.w[0] = 1;
  std::fill_n(inputs.window.kbuf.begin(), 128, to_bfloat16(1));
  std::fill_n(inputs.window.ubuf.begin(), 128, to_bfloat16(1));
  std::fill(inputs.token.log_gate.begin(), inputs.token.log_gate.end(), -200.0f);
  inputs.token.log_gate[1] = -std::numeric_limits<float>::infinity();
  const judge::StepTensors result = step_or_die(context(), inputs);
  for (int i = 0; i < 128; ++i) {
    EXPECT_EQ(result.o[i].bits & 0x7FFF, 0);
    EXPECT_EQ(result.g_row[i].bits, 0);
  }
  EXPECT_EQ(result.pcum_new[0], -200.0f);
}

TEST_P(StepTest, AnEntryOfWeightZeroContributesNothing) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(2), 1);
  judge::StepInputs muted = inputs;
  judge::StepInputs broken = inputs;
  for (size_t n = 0; n < 2; ++n) {
    muted.h[n] = broken.h[n] = 12;
    muted.window.w[n * 16 + 4] = broken.window.w[n * 16 + 4] = 0;
    std::fill_n(broken.window.kbuf.begin() + (n * 16 + 4) * 128, 128, Bfloat16{0x7FC0});
    std::fill_n(broken.window.ubuf.begin() + (n * 16 + 4) * 128, 128, Bfloat16{0x7F80});
  }
  EXPECT_EQ(bytes_of(step_or_die(backend, broken)), bytes_of(step_or_die(backend, muted)));
}

TEST_P(StepTest, LoudAndFaintInputsAreNormalised) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(4), 1);
  for (size_t i = 0; i < 128; ++i) {
    inputs.token.kx[i] = to_bfloat16(to_float(inputs.token.kx[i]) * 1e37f);
    inputs.token.qx[128 + i] = to_bfloat16(to_float(inputs.token.qx[128 + i]) * 1e30f);
    inputs.token.kx[256 + i] = to_bfloat16(to_float(inputs.token.kx[256 + i]) * 1e-30f);
    inputs.token.qx[384 + i] = Bfloat16{0};
  }
  expect_within_bound(context(), inputs);
}

// ---- the same bits -------------------------------------------------------------------------------------------------

TEST_P(StepTest, ThreadsAndRunsDoNotMatter) {
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry_of(12), 9);
  const auto expected = bytes_of(step_or_die(context(1), inputs));
  for (const int32_t threads : {2, 7, 64}) {
    const Context backend = context(threads);
    for (int run = 0; run < 5; ++run) ASSERT_EQ(bytes_of(step_or_die(backend, inputs)), expected) << threads;
  }
}

TEST_P(StepTest, AloneOrInABatch) {
  const Context backend = context(2);
  for (const int32_t rank : {1, 4, 8}) {
    const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3, rank), 6);
    const judge::StepTensors together = step_or_die(backend, inputs);
    for (int64_t item = 0; item < 6; ++item) {
      const judge::StepTensors alone = step_or_die(backend, gather(inputs, {item}));
      for (int64_t i = 0; i < 3 * 128; ++i) {
        ASSERT_EQ(alone.o[i].bits, together.o[item * 3 * 128 + i].bits);
        ASSERT_EQ(alone.u_row[i].bits, together.u_row[item * 3 * 128 + i].bits);
        ASSERT_EQ(alone.pcum_new[i], together.pcum_new[item * 3 * 128 + i]);
      }
    }
  }
}

TEST_P(StepTest, NonFiniteInputsStayInTheirProgram) {
  const Context backend = context(2);
  const judge::StepInputs clean = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 2);
  const judge::StepTensors expected = step_or_die(backend, clean);
  using Inputs = judge::StepInputs;
  const std::function<void(Inputs&, float)> plants[] = {
      [](Inputs& i, float x) { i.checkpoint.s_k[4 * 128 + 5] = x; },
      [](Inputs& i, float x) { i.checkpoint.u[4 * 512 + 5] = to_half(x); },
      [](Inputs& i, float x) { i.window.pcum[4 * 128 + 5] = x; },
      [](Inputs& i, float x) { i.window.gbuf[4 * 2048 + 5] = to_half(x); },
      [](Inputs& i, float x) { i.token.qx[4 * 128 + 5] = to_bfloat16(x); },
      [](Inputs& i, float x) { i.token.kx[4 * 128 + 5] = to_bfloat16(x); },
      [](Inputs& i, float x) { i.token.vx[4 * 128 + 5] = to_bfloat16(x); },
      [](Inputs& i, float x) { i.token.a[4 * 128 + 5] = to_bfloat16(x); },
      [](Inputs& i, float x) { i.token.b[4] = to_bfloat16(x); }};
  for (const auto& plant : plants) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      judge::StepInputs dirty = clean;
      plant(dirty, value);
      judge::StepTensors result = step_or_die(backend, dirty);
      for (int64_t i = 4 * 128; i < 5 * 128; ++i) {
        result.o[i] = expected.o[i];
        result.k_row[i] = expected.k_row[i];
        result.u_row[i] = expected.u_row[i];
        result.g_row[i] = expected.g_row[i];
        result.pcum_new[i] = expected.pcum_new[i];
      }
      EXPECT_EQ(bytes_of(result), bytes_of(expected)) << &plant - plants << " " << value;
    }
  }
}

#if defined(__x86_64__)
TEST_P(StepTest, FloatingPointModeIsLeftAlone) {
  const unsigned before = _mm_getcsr() & ~0x3Fu;  // the sticky flags may change
  step_or_die(context(2), step_inputs_of(judge::StepFamily::kStructured, geometry_of(9), 2));
  EXPECT_EQ(_mm_getcsr() & ~0x3Fu, before);
}
#endif

TEST(StepInstructionSets, WithFusedMultiplyAddGiveTheSameBits) {
  std::vector<std::string> targets;
  for (const BackendUnderTest& backend : backends_under_test()) {
    const bool fused = backend.target == "avx512" || backend.target == "avx2" || backend.target == "neon";
    if (backend.name == "cpu" && fused) targets.push_back(backend.target);
  }
  for (const judge::StepFamily family : judge::all_step_families()) {
    for (const GateFunction gate : judge::all_gate_functions()) {
      const judge::StepInputs inputs = step_inputs_of(family, geometry_of(9, 8), 2, gate);
      for (size_t i = 1; i < targets.size(); ++i) {
        EXPECT_EQ(bytes_of(step_or_die(Context("cpu", 1, targets[i]), inputs)),
                  bytes_of(step_or_die(Context("cpu", 1, targets[0]), inputs)))
            << targets[i] << " and " << targets[0];
      }
    }
  }
}

LQ_FOR_ALL_BACKENDS(StepTest);

}  // namespace
}  // namespace leapquant::conformance
