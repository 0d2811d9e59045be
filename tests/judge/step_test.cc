// SPDX-License-Identifier: Apache-2.0
//
// The reference of the step against the recurrence that it stands for, its families, and a judge that notices.
#include "ref/step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "core/append_weight.h"
#include "fixture.h"
#include "judge/verify_step.h"

namespace leapquant::judge {
namespace {

constexpr uint64_t kSeed = 3;

StepInputs draw_step(StepFamily family, int64_t batch, const Geometry& geometry,
                     GateFunction gate = GateFunction::kSoftplus) {
  Result<StepInputs> inputs = make_step_inputs({geometry, family, batch, kSeed, 2, {gate}});
  EXPECT_TRUE(inputs.ok()) << inputs.status().message();
  return std::move(inputs.value());
}

StepInputs draw_step(StepFamily family, int64_t batch, int32_t heads, GateFunction gate = GateFunction::kSoftplus) {
  return draw_step(family, batch, geometry_of(heads), gate);
}

Geometry gdn_geometry(int32_t heads, int32_t key_heads) {
  Geometry geometry = geometry_of(heads);
  geometry.gate = Gate::kGdn;
  geometry.num_key_heads = key_heads;
  return geometry;
}

template <class Real>
ref::StepValues<Real> values_of(const StepInputs& inputs, int64_t n) {
  const int64_t item = n / inputs.geometry.num_heads;
  const int64_t head = n % inputs.geometry.num_heads;
  return ref::step_values<Real>(inputs.geometry, inputs.gate, inputs.checkpoint.view().at(item, head),
                                inputs.window.view().at(item, head), inputs.h[n], inputs.token.view().at(item, head));
}

template <class Real>
StepTensors reference_step(const StepInputs& inputs) {
  StepTensors result(inputs.geometry, inputs.batch);
  result.w_new = inputs.window.w;
  result.p_new = inputs.window.p;
  for (int64_t n = 0; n < inputs.programs(); ++n) {
    const ref::StepValues<Real> values = values_of<Real>(inputs, n);
    ref::write_step(values, result.rows(n));
    append_weight(inputs.geometry.gate, result.weights(n), inputs.h[n], values.outcome().token_decay);
  }
  return result;
}

// The state before the token, through the flush's rebuild: entries that are not occupied made empty.
std::vector<double> state_before(const StepInputs& inputs, int64_t n) {
  const Geometry& g = inputs.geometry;
  WindowTensors window = inputs.window;
  const WindowProgram w = window.view().at(n / g.num_heads, n % g.num_heads);
  for (int64_t j = inputs.h[n]; j < g.window; ++j) {
    w.window_weight[j] = 0;
    if (w.window_gate != nullptr) std::fill_n(w.window_gate + j * g.key_dim, g.key_dim, Half{kHalfOne});
  }
  return ref::rebuild_state<double>(g, inputs.checkpoint.view().at(n / g.num_heads, n % g.num_heads), w);
}

// S diag(en), or S at, then S + u kn': the gated delta rule with nothing buffered.
void expect_the_recurrence(const StepInputs& inputs) {
  const int64_t heads = inputs.geometry.num_heads;
  for (int64_t n = 0; n < inputs.programs(); ++n) {
    const ref::StepValues<double> values = values_of<double>(inputs, n);
    std::vector<double> state = state_before(inputs, n);
    const TokenProgram token = inputs.token.view().at(n / heads, n % heads);
    const std::vector<double> query = ref::normalized<double>(token.query, 128);
    const double beta = to_float(beta_of(*token.beta_input));
    double largest = 1e-30;
    double worst = 0;
    for (int64_t v = 0; v < 128; ++v) {
      double* const row = state.data() + v * 128;
      double seen = 0;
      for (int64_t k = 0; k < 128; ++k) {
        row[k] *= values.gates.decay[inputs.geometry.gate == Gate::kGdn ? 0 : k];
        seen += row[k] * values.key[k];
      }
      const double update = beta * (to_float(token.value[v]) - seen);
      double output = 0;
      for (int64_t k = 0; k < 128; ++k) output += (row[k] + update * values.key[k]) * query[k] / std::sqrt(128.0);
      largest = std::max({largest, std::fabs(output), std::fabs(update)});
      worst = std::max({worst, std::fabs(values.output[v] - output), std::fabs(values.update[v] - update)});
    }
    ASSERT_LE(worst, 1e-11 * largest) << n;
  }
}

TEST(StepReference, IsTheRecurrence) {
  for (const Geometry& geometry : {geometry_of(8), gdn_geometry(8, 4)}) {
    for (const StepFamily family : all_step_families()) {
      for (const GateFunction gate : all_gate_functions()) {
        SCOPED_TRACE(to_string(geometry) + " " + step_family_name(family) + " " + gate_function_name(gate));
        expect_the_recurrence(draw_step(family, 2, geometry, gate));
      }
    }
  }
}

TEST(StepReference, GatesAreTheFormulas) {
  const StepInputs inputs = draw_step(StepFamily::kRandom, 1, 1);
  TokenProgram token = inputs.token.view().at(0, 0);
  const Bfloat16 pre[] = {to_bfloat16(-2.0f), to_bfloat16(30.0f)};
  const float bias[] = {0.5f, 0.0f};
  const float rate = std::log(2.0f);
  const float given[] = {-0.25f, -7.0f};
  float before[] = {-1.0f, 0.0f};
  WindowProgram window{};
  window.log_decay = before;
  token.gate_input = pre;
  token.gate_bias = bias;
  token.log_rate = &rate;
  token.log_gate = given;
  Geometry two = geometry_of(1);
  two.key_dim = 2;
  const auto softplus = ref::step_gates<double>(two, {GateFunction::kSoftplus}, token, window);
  EXPECT_NEAR(softplus.log_decay[0], -1 - 2 * std::log(1 + std::exp(-1.5)), 1e-7);
  EXPECT_NEAR(softplus.log_decay[1], -60, 1e-5);
  EXPECT_NEAR(softplus.decay[0], std::pow(1 + std::exp(-1.5), -2), 1e-7);
  const auto bounded = ref::step_gates<double>(two, {GateFunction::kBounded, -5.0f}, token, window);
  EXPECT_NEAR(bounded.log_decay[0], -1 - 5 / (1 + std::exp(3.0)), 1e-7);
  EXPECT_NEAR(bounded.log_decay[1], -5, 1e-7);
  const auto as_given = ref::step_gates<double>(two, {GateFunction::kGiven}, token, window);
  EXPECT_EQ(as_given.log_decay[0], -1.25);
  EXPECT_EQ(as_given.decay[1], std::exp(-7.0));
}

TEST(StepReference, TheScalarGateIsTheFormula) {
  StepInputs inputs = draw_step(StepFamily::kRandom, 1, gdn_geometry(1, 1));
  const TokenProgram token = inputs.token.view().at(0, 0);
  const WindowProgram window = inputs.window.view().at(0, 0);
  inputs.token.a[0] = to_bfloat16(-2.0f);
  inputs.token.dt_bias[0] = 0.5f;
  inputs.token.A_log[0] = std::log(2.0f);
  inputs.token.log_gate[0] = -0.25f;
  *window.decay = 2e-41f;
  const double softplus = std::pow(1 + std::exp(-1.5), -2);
  const auto gates = ref::step_gates<double>(inputs.geometry, {GateFunction::kSoftplus}, token, window);
  EXPECT_NEAR(gates.decay[0], softplus, 1e-7);
  EXPECT_NEAR(gates.checkpoint_decay[0], double{*window.decay} * softplus, 1e-47);
  EXPECT_TRUE(gates.log_decay.empty());
  EXPECT_NEAR(ref::step_gates<double>(inputs.geometry, {GateFunction::kBounded, -5}, token, window).decay[0],
              std::exp(-5 / (1 + std::exp(3.0))), 1e-7);
  EXPECT_EQ(ref::step_gates<double>(inputs.geometry, {GateFunction::kGiven}, token, window).decay[0], std::exp(-0.25));
}

TEST(StepReference, BetaIsRoundedOnceForEveryInput) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Bfloat16 input{static_cast<uint16_t>(bits)};
    const float x = to_float(input);
    const float beta = to_float(beta_of(input));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(beta));
      continue;
    }
    const long double exact = 1.0L / (1.0L + std::exp(-static_cast<long double>(x)));
    const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
    ASSERT_LE(std::fabs(beta - exact), std::ldexp(0.5L, exponent - 7)) << x;
  }
}

TEST(StepReference, LoudInputsAreNormalised) {
  std::vector<Bfloat16> loud(128, to_bfloat16(3e38f));
  EXPECT_NEAR(ref::normalized<float>(loud.data(), 128)[7], std::sqrt(1.0f / 128), 1e-6f);
  std::vector<Bfloat16> faint(128, to_bfloat16(1e-20f));
  EXPECT_NEAR(ref::normalized<float>(faint.data(), 128)[7], 1e-17f, 1e-19f);
}

TEST(StepFamilies, EdgesAreWhatTheyAreCalled) {
  const StepInputs inputs = draw_step(StepFamily::kStructured, 2, 9);
  EXPECT_EQ(inputs.h[1], 0);
  EXPECT_EQ(inputs.h[3], 15);
  const StepTensors result = reference_step<float>(inputs);
  for (int64_t i = 0; i < 128; ++i) {
    EXPECT_EQ(result.o[(9 + 2) * 128 + i].bits & 0x7FFF, 0);  // zero state, zero value
    EXPECT_LT(inputs.window.pcum[6 * 128 + i], -199);
  }
}

TEST(StepFamilies, TheScalarGatesEdgesAreWhatTheyAreCalled) {
  const StepInputs inputs = draw_step(StepFamily::kStructured, 2, gdn_geometry(9, 9));
  EXPECT_EQ(step_edge_of(inputs.geometry, 0, 6), StepEdge::kRankOne);
  EXPECT_EQ(inputs.h[1], 0);
  EXPECT_EQ(inputs.h[3], 15);
  EXPECT_GE(inputs.h[6], 1);
  EXPECT_GT(inputs.window.w[6 * 16], 0.0f);
  for (size_t j = 1; j < 16; ++j) EXPECT_EQ(inputs.window.w[6 * 16 + j], 0.0f);
  for (int64_t i = 0; i < 128 * 128; ++i) EXPECT_EQ(inputs.checkpoint.codes[6 * 16384 + i], 0);
  // Weights rise to 1 at the newest entry, and the checkpoint has decayed by more than the oldest one.
  for (size_t n = 7; n < 9; ++n) {
    const auto entries = static_cast<size_t>(inputs.h[n]);
    for (size_t j = 1; j < entries; ++j) EXPECT_LT(inputs.window.w[n * 16 + j - 1], inputs.window.w[n * 16 + j]);
    if (entries == 0) continue;
    EXPECT_EQ(inputs.window.w[n * 16 + entries - 1], 1.0f);
    EXPECT_LT(inputs.window.p[n], inputs.window.w[n * 16]);
  }
}

// What a program is made of does not depend on who shares its key head.
TEST(StepFamilies, AGroupSharesTheKeysOfItsFirstHead) {
  for (const StepFamily family : all_step_families()) {
    const StepInputs own = draw_step(family, 2, gdn_geometry(8, 8));
    const StepInputs shared = draw_step(family, 2, gdn_geometry(8, 2));
    EXPECT_EQ(shared.token.qx.size(), 2u * 2 * 128);
    for (int64_t row = 0; row < 4; ++row) {
      for (int64_t k = 0; k < 128; ++k) {
        ASSERT_EQ(shared.token.kx[row * 128 + k].bits, own.token.kx[row * 4 * 128 + k].bits);
        ASSERT_EQ(shared.token.qx[row * 128 + k].bits, own.token.qx[row * 4 * 128 + k].bits);
      }
    }
    for (size_t n = 0; n < own.token.a.size(); ++n) ASSERT_EQ(shared.token.a[n].bits, own.token.a[n].bits);
  }
}

TEST(StepFamilies, NoEdgeIsLostWithFewHeads) {
  std::vector<int> seen(kStepEdgeCount);
  for (int64_t item = 0; item < 4; ++item) {
    for (int64_t head = 0; head < 2; ++head) ++seen[static_cast<size_t>(step_edge_of(geometry_of(2), item, head))];
  }
  for (const int count : seen) EXPECT_GE(count, 1);
}

TEST(StepFamilies, NextAppendsWhatTheReferenceGave) {
  for (const Geometry& geometry : {geometry_of(9), gdn_geometry(9, 3)}) {
    const StepInputs first = draw_step(StepFamily::kStructured, 1, geometry);
    const StepInputs next = draw_step(StepFamily::kNext, 1, geometry);
    StepTensors result = reference_step<float>(first);
    for (int64_t n = 0; n < 9; ++n) {
      const bool full = first.h[n] == 15;
      EXPECT_EQ(next.h[n], full ? 15 : first.h[n] + 1);
      if (full) continue;
      for (int64_t k = 0; k < 128; ++k) {
        ASSERT_EQ(next.window.kbuf[(n * 16 + first.h[n]) * 128 + k].bits, result.k_row[n * 128 + k].bits);
      }
      ASSERT_TRUE(std::equal(result.w_new.begin() + n * 16, result.w_new.begin() + (n + 1) * 16,
                             next.window.w.begin() + n * 16));
      const WindowProgram window = next.window.view().at(0, n);
      if (geometry.gate == Gate::kGdn) {
        EXPECT_EQ(*window.decay, result.p_new[static_cast<size_t>(n)]);
      } else {
        EXPECT_TRUE(std::equal(window.log_decay, window.log_decay + 128, result.rows(n).log_decay));
      }
    }
  }
}

TEST(StepFamilies, AProgramDoesNotDependOnTheBatchSize) {
  for (const StepFamily family : all_step_families()) {
    for (const Geometry& geometry : {geometry_of(3), gdn_geometry(4, 2)}) {
      const StepTensors small = reference_step<float>(draw_step(family, 1, geometry));
      const StepTensors large = reference_step<float>(draw_step(family, 4, geometry));
      for (size_t i = 0; i < small.o.size(); ++i) ASSERT_EQ(small.o[i].bits, large.o[i].bits);
    }
  }
}

TEST(StepFamilies, UnknownNamesAreRefusedWithTheKnownOnes) {
  EXPECT_NE(parse_step_family("trained").status().message().find("structured, next, random"), std::string::npos);
  EXPECT_NE(parse_gate_function("relu").status().message().find("softplus, bounded, given"), std::string::npos);
}

TEST(StepJudge, PassesTheReference) {
  for (const Geometry& geometry : {geometry_of(9), gdn_geometry(9, 3)}) {
    for (const StepFamily family : all_step_families()) {
      for (const GateFunction gate : all_gate_functions()) {
        SCOPED_TRACE(to_string(geometry) + " " + step_family_name(family) + " " + gate_function_name(gate));
        const StepInputs inputs = draw_step(family, 3, geometry, gate);
        const StepJudgement judged = judge_step(inputs, reference_step<float>(inputs), 2);
        EXPECT_EQ(judged.programs, 27);
        EXPECT_EQ(judged.elements_over, 0);
        EXPECT_TRUE(judged.passes() && judged.finite);
        EXPECT_LT(judged.worst_use(), 0.2);
        EXPECT_EQ(judge_step(inputs, reference_step<double>(inputs), 2).over, 0);
      }
    }
  }
}

// One element of one result, two steps of its format off (or as little as possible where the result is fp32 and exact).
TEST(StepJudge, NoticesASingleElement) {
  const StepInputs inputs = draw_step(StepFamily::kRandom, 1, 3);
  const StepTensors valid = reference_step<float>(inputs);
  const std::pair<StepOutput, void (*)(StepTensors&)> faults[] = {
      {StepOutput::kOutput, [](StepTensors& t) { t.o[200].bits += 2; }},
      {StepOutput::kKey, [](StepTensors& t) { t.k_row[200].bits += 2; }},
      {StepOutput::kUpdate, [](StepTensors& t) { t.u_row[200].bits += 2; }},
      {StepOutput::kGate, [](StepTensors& t) { t.g_row[200].bits += 2; }},
      {StepOutput::kWeight, [](StepTensors& t) { t.w_new[20] += 1e-6f; }},
      {StepOutput::kLogDecay, [](StepTensors& t) { t.pcum_new[200] *= 1.0001f; }}};
  for (const auto& [output, spoil] : faults) {
    StepTensors spoilt = valid;
    spoil(spoilt);
    const StepJudgement judged = judge_step(inputs, spoilt, 1);
    EXPECT_EQ(judged.elements_over, 1) << kStepOutputNames[static_cast<size_t>(output)];
    EXPECT_EQ(judged.over, 1);
    EXPECT_EQ(judged.worst_program, 1);
    EXPECT_GT(judged.worst[static_cast<size_t>(output)], 1);
    EXPECT_TRUE(judged.finite);
  }
  StepTensors nan = valid;
  nan.o[5].bits = 0x7FC0;
  EXPECT_FALSE(judge_step(inputs, nan, 1).finite);
  EXPECT_EQ(judge_step(inputs, nan, 1).over, 1);
}

// GDN: every occupied weight has a bound, all others are held to the bit, and so are products with 0.
TEST(StepJudge, NoticesASingleDecay) {
  StepInputs inputs = draw_step(StepFamily::kRandom, 1, gdn_geometry(3, 1));
  inputs.h = {4, 4, 4};
  inputs.window.w[16 + 1] = 0;
  inputs.window.w[16 + 3] = 1e-42f;
  inputs.window.p[2] = 0;
  const StepTensors valid = reference_step<float>(inputs);
  EXPECT_TRUE(judge_step(inputs, valid, 1).passes());
  struct Fault {
    StepOutput output;
    int64_t program;
    void (*spoil)(StepTensors&);
  };
  const Fault faults[] = {{StepOutput::kWeight, 1, [](StepTensors& t) { t.w_new[16] *= 1.00002f; }},
                          {StepOutput::kWeight, 1, [](StepTensors& t) { t.w_new[16 + 1] = 0x1p-149f; }},
                          {StepOutput::kWeight, 1, [](StepTensors& t) { t.w_new[16 + 3] += 0x1p-147f; }},
                          {StepOutput::kWeight, 1, [](StepTensors& t) { t.w_new[16 + 4] = 0.99999994f; }},
                          {StepOutput::kWeight, 1, [](StepTensors& t) { t.w_new[16 + 5] *= 1.000001f; }},
                          {StepOutput::kDecay, 1, [](StepTensors& t) { t.p_new[1] *= 1.00002f; }},
                          {StepOutput::kDecay, 2, [](StepTensors& t) { t.p_new[2] = 0x1p-149f; }}};
  for (const Fault& fault : faults) {
    StepTensors spoilt = valid;
    fault.spoil(spoilt);
    const StepJudgement judged = judge_step(inputs, spoilt, 1);
    EXPECT_EQ(judged.elements_over, 1) << &fault - faults;
    EXPECT_EQ(judged.worst_program, fault.program);
    EXPECT_GT(judged.worst[static_cast<size_t>(fault.output)], 1);
  }
  StepTensors nearly = valid;
  nearly.w_new[16] *= 1.000005f;
  nearly.p_new[1] *= 0.999995f;
  EXPECT_TRUE(judge_step(inputs, nearly, 1).passes());
}

TEST(StepJudge, WhatIsZeroMustBeZero) {
  const StepInputs inputs = draw_step(StepFamily::kStructured, 2, 9);
  StepTensors result = reference_step<float>(inputs);
  result.o[(9 + 2) * 128 + 3].bits = 1;  // the smallest subnormal
  EXPECT_EQ(judge_step(inputs, result, 1).elements_over, 1);
}

TEST(VerifyStep, EveryBackendOfThisMachinePassesOrRefusesByName) {
  for (const lq_backend_info& backend : backends()) {
    if (backend.targets[0] == '\0') continue;
    for (const Geometry& geometry : {geometry_of(12), gdn_geometry(12, 4)}) {
      const Result<StepJudgement> judged = verify_step(Context(backend.name), {geometry, StepFamily::kNext, 2});
      if (judged.ok()) {
        EXPECT_TRUE(judged.value().passes()) << backend.name;
      } else {
        EXPECT_EQ(judged.status().code(), Code::kUnsupported);
        EXPECT_NE(judged.status().message().find(backend.name), std::string::npos);
      }
    }
  }
}

}  // namespace
}  // namespace leapquant::judge
