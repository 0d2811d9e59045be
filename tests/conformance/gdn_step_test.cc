// SPDX-License-Identifier: Apache-2.0
//
// The step of the scalar gate: what differs from the other gate's tests is the decay, and key heads that value heads
// share. Random lives of slots, drafts and states have both gates in their own files.
#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <limits>

#include "core/window_copy.h"
#include "step_calls.h"

namespace leapquant::conformance {
namespace {

using GdnStepTest = BackendTest;

judge::StepInputs random_inputs(const Geometry& geometry, int64_t batch, uint64_t seed = 7) {
  return step_inputs_of(judge::StepFamily::kRandom, geometry, batch, GateFunction::kSoftplus, seed);
}

TEST_P(GdnStepTest, EveryFamilyGateAndRankIsAccurate) {
  const Context backend = context(2);
  for (const judge::StepFamily family : judge::all_step_families()) {
    for (const GateFunction gate : judge::all_gate_functions()) {
      for (const int32_t rank : {1, 2, 4, 8}) {
        expect_within_bound(backend, step_inputs_of(family, gdn_geometry(8, rank, 4), kFamilyBatch, gate));
      }
    }
  }
}

TEST_P(GdnStepTest, EveryGroupingIsAccurate) {
  const Context backend = context(2);
  const std::pair<int32_t, int32_t> groupings[] = {{1, 1},   {4, 2},   {8, 1},   {12, 4},  {16, 16}, {24, 8},
                                                   {32, 16}, {32, 32}, {48, 16}, {64, 16}, {96, 32}};
  for (const auto& [heads, key_heads] : groupings) {
    for (const judge::StepFamily family : {judge::StepFamily::kStructured, judge::StepFamily::kNext}) {
      expect_within_bound(backend, step_inputs_of(family, gdn_geometry(heads, 4, key_heads), 1));
    }
  }
}

TEST_P(GdnStepTest, TheLargestBatchIsAccurate) {
  expect_within_bound(context(2), random_inputs(gdn_geometry(2, 4, 1), kLargestBatch / 2));
}

TEST_P(GdnStepTest, EveryFillIsAccurate) {
  judge::StepInputs inputs = random_inputs(gdn_geometry(16), 1);
  for (int32_t entries = 0; entries < 16; ++entries) inputs.h[static_cast<size_t>(entries)] = entries;
  expect_within_bound(context(), inputs);
}

// Decays down to the last subnormal and 0, of checkpoint and weights, and the ends of exp and softplus.
TEST_P(GdnStepTest, ExtremeDecaysAreAccurate) {
  judge::StepInputs inputs = random_inputs(gdn_geometry(32), 3);
  const float inputs_of_gate[] = {-300, -90, -20, 0, 3, 19.99f, 20.01f, 40, 60, 80, 90, 100, 110, 3e4f};
  const float decays[] = {0, 0x1p-149f, 2e-41f, 1e-38f, 1e-30f, 0.25f, 1};
  for (size_t n = 0; n < 96; ++n) {
    inputs.token.a[n] = to_bfloat16(inputs_of_gate[n % std::size(inputs_of_gate)]);
    inputs.window.p[n] = decays[n / 3 % std::size(decays)];
    for (size_t j = 0; j < 16; ++j) inputs.window.w[n * 16 + j] = decays[(n + j) % std::size(decays)];
  }
  std::fill(inputs.token.A_log.begin(), inputs.token.A_log.end(), 0.0f);
  std::fill(inputs.token.dt_bias.begin(), inputs.token.dt_bias.end(), 0.0f);
  for (const GateFunction gate : {GateFunction::kSoftplus, GateFunction::kBounded}) {
    inputs.gate.function = gate;
    expect_within_bound(context(), inputs);
  }
  inputs.gate.lower_bound = -95;
  expect_within_bound(context(), inputs);
}

// ---- exact cases ---------------------------------------------------------------------------------------------------

// A gate of one half, given.
judge::StepInputs halved(const Geometry& geometry) {
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry, 1, GateFunction::kGiven);
  std::fill(inputs.token.log_gate.begin(), inputs.token.log_gate.end(), std::log(0.5f));
  return inputs;
}

// Occupied entries and what the checkpoint has seen decay by the token's gate; the others keep their bytes.
TEST_P(GdnStepTest, WeightsAndDecayTakeTheGate) {
  judge::StepInputs inputs = halved(gdn_geometry(2));
  inputs.h = {3, 0};
  inputs.window.p = {0.75f, 2e-41f};
  const judge::StepTensors result = step_or_die(context(), inputs);
  const auto half = static_cast<float>(std::exp(static_cast<double>(std::log(0.5f))));
  for (size_t n = 0; n < 2; ++n) {
    const auto entries = static_cast<size_t>(inputs.h[n]);
    for (size_t j = 0; j < 16; ++j) {
      const float before = inputs.window.w[n * 16 + j];
      const float wanted = j == entries ? 1.0f : j < entries ? before * half : before;
      EXPECT_EQ(result.w_new[n * 16 + j], wanted) << n << ", " << j;
    }
    EXPECT_EQ(result.p_new[n], inputs.window.p[n] * half);
  }
  EXPECT_TRUE(result.g_row.empty() && result.pcum_new.empty());
}

TEST_P(GdnStepTest, AGateOfZeroForgets) {
  judge::StepInputs inputs = halved(gdn_geometry(2));
  inputs.token.log_gate = {-200.0f, -std::numeric_limits<float>::infinity()};
  for (Bfloat16& beta : inputs.token.b) beta = to_bfloat16(-std::numeric_limits<float>::infinity());
  const judge::StepTensors result = step_or_die(context(), inputs);
  for (const Bfloat16 value : result.o) EXPECT_EQ(value.bits & 0x7FFF, 0);
  for (size_t n = 0; n < 2; ++n) {
    EXPECT_EQ(result.p_new[n], 0.0f);
    for (int32_t j = 0; j < inputs.h[n]; ++j) EXPECT_EQ(result.w_new[n * 16 + static_cast<size_t>(j)], 0.0f);
  }
}

TEST_P(GdnStepTest, AnEntryOfWeightZeroContributesNothing) {
  judge::StepInputs inputs = random_inputs(gdn_geometry(1), 1);
  inputs.h[0] = 8;
  inputs.window.w[3] = 0;
  const auto expected = bytes_of(step_or_die(context(), inputs));
  std::fill_n(inputs.window.kbuf.begin() + 3 * 128, 128, Bfloat16{0x7FC0});
  std::fill_n(inputs.window.ubuf.begin() + 3 * 128, 128, Bfloat16{0x7F80});
  std::fill_n(inputs.window.kbuf.begin() + 8 * 128, 8 * 128, Bfloat16{0x7FC0});  // not occupied
  EXPECT_EQ(bytes_of(step_or_die(context(), inputs)), expected);
}

// Value head i takes the query and the key of key head i / (H / H_k).
TEST_P(GdnStepTest, SharedKeyHeadsAreTheSameRowsForEach) {
  for (const int32_t key_heads : {1, 2, 4}) {
    const judge::StepInputs shared = random_inputs(gdn_geometry(8, 4, key_heads), 3);
    judge::StepInputs own = shared;
    own.geometry = own.checkpoint.geometry = own.window.geometry = own.token.geometry = gdn_geometry(8);
    own.token.qx.clear();
    own.token.kx.clear();
    for (int64_t n = 0; n < own.programs(); ++n) {
      const int64_t row = n / 8 * key_heads + n % 8 / (8 / key_heads);
      const auto copy = [&](const std::vector<Bfloat16>& from, std::vector<Bfloat16>& to) {
        to.insert(to.end(), from.begin() + row * 128, from.begin() + (row + 1) * 128);
      };
      copy(shared.token.qx, own.token.qx);
      copy(shared.token.kx, own.token.kx);
    }
    EXPECT_EQ(bytes_of(step_or_die(context(2), shared)), bytes_of(step_or_die(context(), own))) << key_heads;
  }
}

// ---- the same bits -------------------------------------------------------------------------------------------------

TEST_P(GdnStepTest, ThreadsAndCompanyDoNotMatter) {
  const judge::StepInputs inputs =
      step_inputs_of(judge::StepFamily::kStructured, gdn_geometry(12, 4, 4), 5, GateFunction::kBounded);
  const auto expected = bytes_of(step_or_die(context(1), inputs));
  for (const int32_t threads : {2, 7}) EXPECT_EQ(bytes_of(step_or_die(context(threads), inputs)), expected);
  std::vector<unsigned char> first;
  for (const int64_t item : {3, 0}) {
    const auto alone = bytes_of(step_or_die(context(2), gather(inputs, {item})));
    EXPECT_EQ(alone, bytes_of(step_or_die(context(1), gather(inputs, {item}))));
    if (first.empty()) first = alone;
  }
  EXPECT_EQ(bytes_of(step_or_die(context(2), gather(gather(inputs, {1, 3, 2}), {1}))), first);
}

TEST_P(GdnStepTest, NonFiniteInputsStayInTheirProgram) {
  const judge::StepInputs clean = random_inputs(gdn_geometry(4, 4, 2), 2);
  const judge::StepTensors expected = step_or_die(context(), clean);
  using Inputs = judge::StepInputs;
  const std::function<void(Inputs&, float)> plants[] = {
      [](Inputs& i, float x) { i.window.p[5] = x; }, [](Inputs& i, float x) { i.window.w[5 * 16] = x; },
      [](Inputs& i, float x) { i.token.vx[5 * 128] = to_bfloat16(x); },
      [](Inputs& i, float x) { i.token.a[5] = to_bfloat16(-x); },
      [](Inputs& i, float x) { i.token.b[5] = to_bfloat16(x); }};
  for (const auto& plant : plants) {
    judge::StepInputs dirty = clean;
    plant(dirty, std::numeric_limits<float>::quiet_NaN());
    judge::StepTensors result = step_or_die(context(), dirty);
    const StepRows rows = result.rows(5);
    judge::StepTensors wanted = expected;
    const StepRows wanted_rows = wanted.rows(5);
    std::copy_n(wanted_rows.output, 128, rows.output);
    std::copy_n(wanted_rows.key, 128, rows.key);
    std::copy_n(wanted_rows.update, 128, rows.update);
    std::copy_n(wanted.weights(5).window_weight, 16, result.weights(5).window_weight);
    result.p_new[5] = expected.p_new[5];
    EXPECT_EQ(bytes_of(result), bytes_of(expected)) << &plant - plants;
  }
}

// ---- in place ------------------------------------------------------------------------------------------------------

bool is_zero(const std::vector<Bfloat16>& rows, int64_t program) {
  return std::all_of(rows.begin() + program * 128, rows.begin() + (program + 1) * 128,
                     [](Bfloat16 value) { return value.bits == 0; });
}

TEST_P(GdnStepTest, InPlaceIsTheFunctionalStep) {
  const Context backend = context(2);
  const std::vector<int32_t> order = {4, 0, 2, -1, 9, 5};
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    for (const TokenForm form : {TokenForm::kThreeTensors, TokenForm::kPacked}) {
      for (const GateFunction gate : judge::all_gate_functions()) {
        const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, gdn_geometry(8, 4, 4), 6, gate);
        const judge::StepTensors expected = step_or_die(backend, inputs);
        const MirroredPool pool(backend, inputs.geometry, 7, layout);
        const MirroredPool model(backend, inputs.geometry, 7, layout);
        for (const int64_t i : {0, 2, 5}) {
          fill_slot(pool, order[static_cast<size_t>(i)], inputs, i);
          fill_slot(model, order[static_cast<size_t>(i)], inputs, i);
          for (int64_t head = 0; head < 8; ++head) {
            append_program(model, order[static_cast<size_t>(i)], head, inputs, expected, i * 8 + head);
          }
        }
        StepArguments arguments(backend.info().device, order, inputs, form);
        arguments.step(pool);
        EXPECT_EQ(bytes_of(pool), bytes_of(model));
        for (int64_t n = 0; n < 48; ++n) {
          if (n / 8 == 1 || n / 8 == 3 || n / 8 == 4) {
            EXPECT_TRUE(is_zero(arguments.output, n));
          } else {
            EXPECT_TRUE(std::equal(expected.o.begin() + n * 128, expected.o.begin() + (n + 1) * 128,
                                   arguments.output.begin() + n * 128,
                                   [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; }));
          }
        }
        EXPECT_EQ(pool.read_errors().flags, 1u << LQ_ERROR_INDEX);
      }
    }
  }
}

// A window that was not flushed, and counters out of range, keep every byte; a flushed one begins anew. A decay that is
// not finite is carried out and recorded.
TEST_P(GdnStepTest, CountersAndReports) {
  const Context backend = context();
  judge::StepInputs inputs = random_inputs(gdn_geometry(6), 2);
  const int32_t counters[] = {0, 15, 16, 16, 17, -1};
  const WindowProgram flushed = inputs.window.view().at(1, 2);
  std::fill_n(flushed.window_weight, 16, 0.0f);
  *flushed.decay = 1.0f;
  for (int64_t head = 0; head < 6; ++head) inputs.h[6 + head] = head < 2 ? counters[head] : 0;
  const judge::StepInputs one = gather(inputs, {1});
  const judge::StepTensors expected = step_or_die(backend, one);
  const MirroredPool pool(backend, inputs.geometry, 3);
  const MirroredPool model(backend, inputs.geometry, 3);
  for (const MirroredPool* const p : {&pool, &model}) {
    fill_slot(*p, 2, inputs, 1);
    std::copy(std::begin(counters), std::end(counters), &p->counter(2, 0));
  }
  for (const int64_t head : {0, 1, 2}) append_program(model, 2, head, one, expected, head);
  StepArguments arguments(backend.info().device, {2}, one);
  arguments.step(pool);
  EXPECT_EQ(bytes_of(pool), bytes_of(model));
  for (int64_t head = 0; head < 6; ++head) EXPECT_EQ(is_zero(arguments.output, head), head > 2);
  EXPECT_EQ(pool.read_errors().flags, 1u << LQ_ERROR_UNFLUSHED | 1u << LQ_ERROR_COUNTER);

  for (int64_t head = 0; head < 6; ++head) pool.counter(2, head) = 3;
  judge::slot_window(pool.host(), 2, 4).decay[0] = std::numeric_limits<float>::infinity();
  arguments.step(pool);
  EXPECT_EQ(pool.counter(2, 4), 4);
  EXPECT_EQ(pool.read_errors().flags, 1u << LQ_ERROR_NONFINITE);
}

// Sixteen steps from a new slot fill a window whose weights are the products of the gates after each entry.
TEST_P(GdnStepTest, SixteenStepsAFlushAndAStep) {
  const Context backend = context(2);
  const Geometry geometry = gdn_geometry(4, 4, 2);
  const MirroredPool pool(backend, geometry, 2);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, geometry, 1);
  std::vector<std::vector<double>> gates;
  for (uint64_t t = 0; t < 16; ++t) {
    judge::StepInputs token = step_inputs_of(judge::StepFamily::kRandom, geometry, 1, GateFunction::kGiven, 60 + t);
    gates.emplace_back(4);
    for (size_t head = 0; head < 4; ++head) gates.back()[head] = std::exp(double{token.token.log_gate[head]});
    StepArguments arguments(backend.info().device, {1}, token);
    arguments.step(pool);
  }
  for (int64_t head = 0; head < 4; ++head) {
    const WindowProgram window = judge::slot_window(pool.host(), 1, head);
    double decay = 1;
    for (int64_t j = 15; j >= 0; --j) {
      EXPECT_NEAR(window.window_weight[j], decay, 1e-5 * decay);
      decay *= gates[static_cast<size_t>(j)][static_cast<size_t>(head)];
    }
    EXPECT_NEAR(*window.decay, decay, 1e-5 * decay);
    EXPECT_EQ(pool.counter(1, head), 16);
  }
  pool.flush({1}, basis);
  const judge::StepInputs late = random_inputs(geometry, 1, 90);
  StepArguments arguments(backend.info().device, {1}, late);
  arguments.step(pool);
  EXPECT_EQ(pool.read_errors().flags, 0u);
  for (int64_t head = 0; head < 4; ++head) {
    EXPECT_EQ(pool.counter(1, head), 1);
    const WindowProgram window = judge::slot_window(pool.host(), 1, head);
    EXPECT_EQ(window.window_weight[0], 1.0f);
    EXPECT_EQ(window.window_weight[1], 0.0f);
    EXPECT_LT(*window.decay, 1.0f);
  }
}

// ---- shapes and refusals -------------------------------------------------------------------------------------------

void add_dimension(lq_tensor& tensor) {
  tensor.shape[tensor.ndim] = 1;
  tensor.strides[tensor.ndim] = 1;
  ++tensor.ndim;
}

TEST_P(GdnStepTest, ADimensionOfOneMayFollow) {
  const Context backend = context();
  for (const GateFunction gate : {GateFunction::kSoftplus, GateFunction::kGiven}) {
    const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, gdn_geometry(3), 2, gate);
    const auto expected = bytes_of(step_or_die(backend, inputs));
    StepCall call(backend, inputs);
    for (lq_tensor* const tensor : {&call.token.a, &call.token.dt_bias, &call.token.log_gate}) {
      if (tensor->dtype != LQ_DTYPE_NONE) add_dimension(*tensor);
    }
    add_dimension(call.window.p);
    add_dimension(call.result.p_new);
    ASSERT_EQ(call.run(backend), LQ_OK) << lq_last_error();
    EXPECT_EQ(bytes_of(call.output), expected);
  }
}

TEST_P(GdnStepTest, APoolsDecayMayHaveADimensionOfOne) {
  const Context backend = context();
  const Geometry geometry = gdn_geometry(2);
  const MirroredPool donor(backend, geometry, 3);
  lq_pool_tensors storage = donor.device();
  add_dimension(storage.p);
  const lq_pool_options options{judge::public_geometry(geometry), LQ_LAYOUT_COMPACT, 3, &storage, 0};
  const Pool pool(backend, options);
  EXPECT_EQ(pool.tensors().p.ndim, 2);
  storage.p.shape[2] = 2;
  EXPECT_THROW(Pool(backend, options), Error);
}

TEST_P(GdnStepTest, WrongTensorsAreRefusedByName) {
  const Context backend = context();
  const judge::StepInputs valid = random_inputs(gdn_geometry(4, 4, 2), 2);
  struct Bad {
    std::function<void(StepCall&)> spoil;
    std::vector<std::string> words;
  };
  const std::vector<Bad> all = {
      {[](StepCall& c) { c.result.g_row = c.result.k_row; }, {"'result.g_row'", "gdn"}},
      {[](StepCall& c) { c.result.pcum_new = c.result.w_new; }, {"'result.pcum_new'", "gdn"}},
      {[](StepCall& c) { c.result.p_new = {}; }, {"'result.p_new'", "[2, 4]"}},
      {[](StepCall& c) { c.result.p_new.data = c.window.p.data; }, {"'result.p_new'", "overlap", "'p'"}},
      {[](StepCall& c) { c.window.gbuf = c.window.kbuf; }, {"'gbuf'", "gdn"}},
      {[](StepCall& c) { c.window.p = {}; }, {"'p'", "[2, 4]"}},
      {[](StepCall& c) { c.token.a = c.token.vx; }, {"'a'", "[2, 4]", "[2, 4, 128]"}},
      {[](StepCall& c) { c.token.dt_bias.shape[0] = 2; }, {"'dt_bias'", "[4]", "[2]"}},
      {[](StepCall& c) { c.token.qx = c.token.vx; }, {"'qx'", "[2, 2, 128]", "[2, 4, 128]"}},
      {[](StepCall& c) { c.token.mixed = c.token.b; }, {"'mixed'", "[2, 1024]"}},
      {[](StepCall& c) { c.geometry.gate = LQ_GATE_KDA; }, {"key heads"}},
      {[](StepCall& c) { c.geometry.num_key_heads = 3; }, {"num_key_heads"}},
  };
  for (const Bad& bad : all) {
    StepCall call(backend, valid);
    bad.spoil(call);
    const auto before = bytes_of(call.output);
    EXPECT_EQ(call.run(backend), LQ_INVALID_ARGUMENT);
    const std::string text = lq_last_error();
    for (const std::string& word : bad.words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
    EXPECT_EQ(bytes_of(call.output), before);
  }
}

LQ_FOR_ALL_BACKENDS(GdnStepTest);

}  // namespace
}  // namespace leapquant::conformance
