// SPDX-License-Identifier: Apache-2.0
//
// The step in place: what the counters say, what is appended, what stays, what is reported.
#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "core/window_copy.h"
#include "judge/program_copy.h"
#include "step_calls.h"

namespace leapquant::conformance {
namespace {

using StepPoolTest = BackendTest;

bool is_zero(const std::vector<Bfloat16>& rows, int64_t program) {
  return std::all_of(rows.begin() + program * 128, rows.begin() + (program + 1) * 128,
                     [](Bfloat16 value) { return value.bits == 0; });
}

bool is_row(const std::vector<Bfloat16>& rows, int64_t program, const std::vector<Bfloat16>& wanted, int64_t n) {
  return std::equal(rows.begin() + program * 128, rows.begin() + (program + 1) * 128, wanted.begin() + n * 128,
                    [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; });
}

// Any slots in any order among padding and foreign indices, either layout, either form of the token, every gate: the
// bytes of pool and output are those of the functional form.
TEST_P(StepPoolTest, IsTheFunctionalStep) {
  const Context backend = context(2);
  const std::vector<int32_t> order = {9, 0, 2, -1, 12, 30, INT_MAX, 5, INT_MIN};
  const std::vector<int64_t> item_of_position = {0, 0, 1, 0, 0, 2, 0, 3, 0};
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    for (const TokenForm form : {TokenForm::kThreeTensors, TokenForm::kPacked}) {
      for (const GateFunction gate : judge::all_gate_functions()) {
        const judge::StepInputs inputs =
            gather(step_inputs_of(judge::StepFamily::kStructured, geometry_of(9), 4, gate), item_of_position);
        const judge::StepTensors expected = step_or_die(backend, inputs);
        const MirroredPool pool(backend, inputs.geometry, 31, layout);
        const MirroredPool model(backend, inputs.geometry, 31, layout);
        std::fill_n(static_cast<int8_t*>(pool.host().codes.data), 100, int8_t{3});  // slot 0 is nobody's
        std::fill_n(static_cast<int8_t*>(model.host().codes.data), 100, int8_t{3});
        for (size_t i = 0; i < order.size(); ++i) {
          if (order[i] <= 0 || order[i] >= 31 || order[i] == 12) continue;
          fill_slot(pool, order[i], inputs, static_cast<int64_t>(i));
          fill_slot(model, order[i], inputs, static_cast<int64_t>(i));
          for (int64_t head = 0; head < 9; ++head) {
            append_program(model, order[i], head, inputs, expected, static_cast<int64_t>(i) * 9 + head);
          }
        }
        StepArguments arguments(backend.info().device, order, inputs, form);
        // Slot 12 is new: a zero state, whose step is known from its own functional call below.
        arguments.step(pool);
        for (size_t i = 0; i < order.size(); ++i) {
          for (int64_t head = 0; head < 9; ++head) {
            const int64_t n = static_cast<int64_t>(i) * 9 + head;
            if (order[i] <= 0 || order[i] >= 31) {
              EXPECT_TRUE(is_zero(arguments.output, n)) << "position " << i;
            } else if (order[i] != 12) {
              EXPECT_TRUE(is_row(arguments.output, n, expected.o, n)) << "position " << i;
            }
          }
        }
        judge::StepInputs fresh = gather(inputs, {4});
        fresh.checkpoint = judge::CheckpointTensors(fresh.geometry, 1);
        fresh.window = judge::WindowTensors(fresh.geometry, 1);
        std::fill(fresh.window.gbuf.begin(), fresh.window.gbuf.end(), Half{kHalfOne});
        std::fill(fresh.h.begin(), fresh.h.end(), 0);
        const judge::StepTensors first = step_or_die(backend, fresh);
        for (int64_t head = 0; head < 9; ++head) append_program(model, 12, head, fresh, first, head);
        EXPECT_EQ(bytes_of(pool), bytes_of(model));
        const lq_pool_errors errors = pool.read_errors();
        EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
        EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 6);
      }
    }
  }
}

// Counters 0 and 15 append; 16 after a flush is an empty window; all others keep every byte, and give zero rows.
TEST_P(StepPoolTest, CounterProtocol) {
  const Context backend = context();
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(9), 3);
  const int32_t counters[] = {0, 15, 16, 16, 16, 17, -1, INT_MAX, INT_MIN};
  constexpr int64_t kFlushed = 2;
  const auto window_of = [&](int64_t head) { return inputs.window.view().at(1, head); };
  std::fill_n(window_of(kFlushed).window_weight, 16, 0.0f);
  std::fill_n(window_of(kFlushed).window_gate, 2048, Half{kHalfOne});
  std::fill_n(window_of(kFlushed).log_decay, 128, 0.0f);
  window_of(3).window_weight[15] = 1e-30f;
  window_of(4).window_weight[15] = std::numeric_limits<float>::quiet_NaN();
  for (int64_t head = 0; head < 9; ++head) {
    inputs.h[9 + head] = head < kFlushed ? counters[head] : 0;
  }
  const judge::StepInputs middle = gather(inputs, {1});
  const judge::StepTensors expected = step_or_die(backend, middle);

  const MirroredPool pool(backend, inputs.geometry, 4);
  const MirroredPool model(backend, inputs.geometry, 4);
  for (const MirroredPool* const p : {&pool, &model}) {
    for (int64_t item = 0; item < 3; ++item) fill_slot(*p, item + 1, inputs, item);
    std::copy(std::begin(counters), std::end(counters), &p->counter(2, 0));
  }
  for (const int64_t head : {0, 1, 2}) append_program(model, 2, head, middle, expected, head);

  StepArguments arguments(backend.info().device, {-1, 2, 0}, inputs);
  arguments.step(pool);
  EXPECT_EQ(bytes_of(pool), bytes_of(model));
  EXPECT_EQ(pool.counter(2, 0), 1);
  EXPECT_EQ(pool.counter(2, 1), 16);
  EXPECT_EQ(pool.counter(2, kFlushed), 1);
  for (int64_t head = 0; head < 9; ++head) {
    EXPECT_TRUE(is_zero(arguments.output, head) && is_zero(arguments.output, 18 + head));
    EXPECT_TRUE(head < 3 ? is_row(arguments.output, 9 + head, expected.o, head) : is_zero(arguments.output, 9 + head))
        << "head " << head;
  }
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_UNFLUSHED | 1u << LQ_ERROR_COUNTER);
  EXPECT_EQ(errors.first_position[LQ_ERROR_UNFLUSHED], 1);
  EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 1);
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

TEST_P(StepPoolTest, TheFirstPositionOfEachKindIsRecorded) {
  const Context backend = context(2);
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(4), 6);
  const MirroredPool pool(backend, inputs.geometry, 6);
  for (int64_t slot = 1; slot < 6; ++slot) fill_slot(pool, slot, inputs, slot);
  pool.counter(3, 2) = 16;  // random weights: not flushed
  pool.counter(1, 0) = 16;
  pool.counter(4, 3) = 99;
  StepArguments arguments(backend.info().device, {5, 2, 4, 3, 1, 6}, inputs);
  arguments.step(pool);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 2);
  EXPECT_EQ(errors.first_position[LQ_ERROR_UNFLUSHED], 3);
  EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 5);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], -1);
}

// Sixteen steps from a new slot, a flush, and a step: the flush is the functional one of the same window, and the step
// after it finds an empty window.
TEST_P(StepPoolTest, SixteenStepsAFlushAndAStep) {
  const Context backend = context(2);
  const Geometry geometry = geometry_of(3);
  const MirroredPool pool(backend, geometry, 3);
  const std::vector<int32_t> order = {2, 1};
  for (int32_t t = 0; t < 16; ++t) {
    const judge::StepInputs tokens =
        step_inputs_of(judge::StepFamily::kRandom, geometry, 2, GateFunction::kSoftplus, 100 + t);
    StepArguments arguments(backend.info().device, order, tokens);
    arguments.step(pool);
    for (int64_t head = 0; head < 3; ++head) ASSERT_EQ(pool.counter(1, head), t + 1);
  }
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry, 2);
  inputs.checkpoint = judge::read_slots(pool.host(), geometry, order);
  for (size_t item = 0; item < 2; ++item) {
    for (int64_t head = 0; head < 3; ++head) {
      copy_window(geometry, judge::slot_window(pool.host(), order[item], head),
                  inputs.window.view().at(static_cast<int64_t>(item), head));
    }
  }
  for (const float weight : inputs.window.w) ASSERT_EQ(weight, 1.0f);
  const judge::StepInputs late = step_inputs_of(judge::StepFamily::kRandom, geometry, 2, GateFunction::kSoftplus, 200);
  const auto full = bytes_of(pool);
  StepArguments too_early(backend.info().device, order, late);
  too_early.step(pool);
  EXPECT_EQ(bytes_of(pool), full);
  EXPECT_EQ(pool.read_errors().flags, 1u << LQ_ERROR_UNFLUSHED);

  pool.flush(order, inputs);
  const judge::CheckpointTensors flushed = judge::read_slots(pool.host(), geometry, order);
  EXPECT_EQ(bytes_of(flushed), bytes_of(flush_or_die(backend, inputs)));

  judge::StepInputs after = late;
  after.checkpoint = flushed;
  std::fill(after.window.pcum.begin(), after.window.pcum.end(), 0.0f);
  std::fill(after.h.begin(), after.h.end(), 0);
  StepArguments arguments(backend.info().device, order, late);
  arguments.step(pool);
  EXPECT_EQ(pool.read_errors().flags, 0u);
  const judge::StepTensors expected = step_or_die(backend, after);
  for (int64_t n = 0; n < 6; ++n) {
    EXPECT_TRUE(is_row(arguments.output, n, expected.o, n));
    EXPECT_EQ(pool.counter(order[static_cast<size_t>(n / 3)], n % 3), 1);
  }
}

// A slot's bytes and its output row are the same with and without padding around it, and slot 0 stays as it was.
TEST_P(StepPoolTest, PaddingChangesNoLiveSlot) {
  const Context backend = context(2);
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(2), 8);
  const std::vector<int32_t> padded = {0, 1, 0, 0, 2, -1, 0, 0};
  const MirroredPool pool(backend, inputs.geometry, 3);
  const MirroredPool model(backend, inputs.geometry, 3);
  for (const MirroredPool* const p : {&pool, &model}) {
    for (int64_t slot = 0; slot < 3; ++slot) fill_slot(*p, slot, inputs, slot);
  }
  StepArguments with(backend.info().device, padded, inputs);
  StepArguments without(backend.info().device, {1, 2}, gather(inputs, {1, 4}));
  with.step(pool);
  without.step(model);
  EXPECT_EQ(bytes_of(pool), bytes_of(model));
  for (int64_t head = 0; head < 2; ++head) {
    EXPECT_TRUE(is_row(with.output, 2 + head, without.output, head));
    EXPECT_TRUE(is_row(with.output, 8 + head, without.output, 2 + head));
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

// A slot copied mid-window and its origin continue with the same bits, through a flush.
TEST_P(StepPoolTest, AForkContinuesAsItsOrigin) {
  const Context backend = context(2);
  const Geometry geometry = geometry_of(2);
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry, 1);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, geometry, 1);
  const MirroredPool pool(backend, geometry, 3);
  for (const int64_t slot : {1, 2}) fill_slot(pool, slot, inputs, 0);
  for (int32_t t = 0; t < 20; ++t) {
    const judge::StepInputs token =
        step_inputs_of(judge::StepFamily::kRandom, geometry, 1, GateFunction::kSoftplus, 300 + t);
    StepArguments arguments(backend.info().device, {1, 2}, gather(token, {0, 0}));
    arguments.step(pool);
    for (int64_t head = 0; head < 2; ++head) ASSERT_TRUE(is_row(arguments.output, head, arguments.output, 2 + head));
    pool.flush({1, 2}, basis);
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
  const std::vector<int32_t> origin = {1};
  const std::vector<int32_t> fork = {2};
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), geometry, origin)),
            bytes_of(judge::read_slots(pool.host(), geometry, fork)));
}

TEST_P(StepPoolTest, NoIndicesIsANoOp) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(2), 1);
  const MirroredPool pool(backend, inputs.geometry, 2);
  fill_slot(pool, 1, inputs, 0);
  const auto before = bytes_of(pool);
  for (const TokenForm form : {TokenForm::kThreeTensors, TokenForm::kPacked}) {
    StepArguments arguments(backend.info().device, {}, gather(inputs, {}), form);
    arguments.step(pool);
    EXPECT_EQ(bytes_of(pool), before);
  }
}

TEST_P(StepPoolTest, TheSameSlotTwiceLeavesTheOthersAlone) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(2), 3);
  const MirroredPool pool(backend, inputs.geometry, 4);
  for (int64_t item = 0; item < 3; ++item) fill_slot(pool, item + 1, inputs, item);
  const std::vector<int32_t> others = {2, 3};
  const auto before = bytes_of(judge::read_slots(pool.host(), inputs.geometry, others));
  StepArguments arguments(backend.info().device, {1, 1, 1}, inputs);
  arguments.step(pool);
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, others)), before);
  for (int64_t head = 0; head < 2; ++head) {
    EXPECT_EQ(pool.counter(2, head), inputs.h[2 + head]);
    EXPECT_EQ(pool.counter(3, head), inputs.h[4 + head]);
  }
}

// NaN and Inf in a token or a state: that program alone is spoilt, stepped and reported.
TEST_P(StepPoolTest, NonFiniteProgramsAreReportedAndContained) {
  const Context backend = context(2);
  const judge::StepInputs clean = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 4);
  const auto run = [&](const judge::StepInputs& inputs, const MirroredPool& pool) {
    for (int64_t item = 0; item < 4; ++item) fill_slot(pool, item + 1, inputs, item);
    StepArguments arguments(backend.info().device, {4, 3, 2, 1}, gather(inputs, {3, 2, 1, 0}));
    arguments.step(pool);
    return arguments.output;
  };
  const MirroredPool clean_pool(backend, clean.geometry, 5);
  const std::vector<Bfloat16> expected = run(clean, clean_pool);
  judge::StepInputs dirty = clean;
  const size_t token = (1 * 3 + 2) * 128 + 7;  // slot 2 at position 2, head 2
  dirty.token.vx[token] = Bfloat16{0x7FC0};
  dirty.checkpoint.s_v[token - 128] = std::numeric_limits<float>::infinity();
  const MirroredPool pool(backend, clean.geometry, 5);
  const std::vector<Bfloat16> output = run(dirty, pool);
  for (int64_t n = 0; n < 12; ++n) {
    const bool spoilt = n == 2 * 3 + 1 || n == 2 * 3 + 2;
    EXPECT_EQ(is_row(output, n, expected, n), !spoilt) << n;
  }
  EXPECT_EQ(pool.counter(2, 2), clean.h[5] + 1);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 2);
  EXPECT_EQ(clean_pool.read_errors().flags, 0u);
}

// ---- random sequences ----------------------------------------------------------------------------------------------

// A pool in the functional form: one batch item a slot, and its counters.
class PoolModel {
 public:
  PoolModel(const Geometry& geometry, int64_t slots)
      : state_(step_inputs_of(judge::StepFamily::kRandom, geometry, slots)), counters_(state_.h) {}

  int64_t slots() const { return state_.batch; }
  const Geometry& geometry() const { return state_.geometry; }
  int32_t& counter(int64_t slot, int64_t head) { return counters_[slot * geometry().num_heads + head]; }

  // The expected output rows. Tokens are those of `tokens`, in the order of `order`.
  std::vector<Bfloat16> step(const Context& context, const std::vector<int32_t>& order,
                             const judge::StepInputs& tokens) {
    const int64_t heads = geometry().num_heads;
    std::vector<Bfloat16> output(static_cast<size_t>(tokens.programs() * geometry().value_dim), Bfloat16{0});
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i] <= 0 || order[i] >= slots()) continue;
      judge::StepInputs one = gather(state_, {order[i]});
      one.token = gather(tokens, {static_cast<int64_t>(i)}).token;
      one.gate = tokens.gate;
      for (int64_t head = 0; head < heads; ++head) one.h[head] = entries(order[i], head).value_or(0);
      const judge::StepTensors result = step_or_die(context, one);
      for (int64_t head = 0; head < heads; ++head) {
        if (!entries(order[i], head)) continue;
        append(order[i], head, one.h[head], result);
        std::copy_n(result.o.begin() + head * 128, 128,
                    output.begin() + (static_cast<int64_t>(i) * heads + head) * 128);
      }
    }
    return output;
  }

  void flush(const Context& context, const std::vector<int32_t>& order, const judge::FlushInputs& basis) {
    const judge::FlushInputs all{geometry(), slots(), state_.checkpoint, state_.window, basis.q0};
    const judge::CheckpointTensors flushed = flush_or_die(context, all);
    for (const int32_t slot : order) {
      if (slot <= 0 || slot >= slots()) continue;
      for (int64_t head = 0; head < geometry().num_heads; ++head) {
        if (counter(slot, head) != geometry().window) continue;
        copy_program(flushed, slot * geometry().num_heads + head, state_.checkpoint);
        const WindowProgram window = state_.window.view().at(slot, head);
        std::fill_n(window.window_weight, 16, 0.0f);
        std::fill_n(window.window_gate, 2048, Half{kHalfOne});
        std::fill_n(window.log_decay, 128, 0.0f);
      }
    }
  }

  void write_to(const MirroredPool& pool) const {
    for (int64_t slot = 0; slot < state_.batch; ++slot) fill_slot(pool, slot, state_, slot);
    std::copy(counters_.begin(), counters_.end(), &pool.counter(0, 0));
  }

 private:
  // What the counter protocol makes of a program; nothing where it must not step.
  std::optional<int32_t> entries(int64_t slot, int64_t head) {
    const int32_t count = counter(slot, head);
    if (count >= 0 && count < 16) return count;
    const bool flushed = count == 16 && state_.window.view().at(slot, head).window_weight[15] == 0;
    return flushed ? std::optional(0) : std::nullopt;
  }

  void append(int64_t slot, int64_t head, int32_t entry, const judge::StepTensors& result) {
    const WindowProgram window = state_.window.view().at(slot, head);
    std::copy_n(result.k_row.begin() + head * 128, 128, window.window_key + entry * 128);
    std::copy_n(result.u_row.begin() + head * 128, 128, window.window_update + entry * 128);
    std::copy_n(result.g_row.begin() + head * 128, 128, window.window_gate + entry * 128);
    std::copy_n(result.w_new.begin() + head * 16, 16, window.window_weight);
    std::copy_n(result.pcum_new.begin() + head * 128, 128, window.log_decay);
    counter(slot, head) = entry + 1;
  }

  judge::StepInputs state_;
  std::vector<int32_t> counters_;
};

// Steps and flushes of random slots, with foreign and padding indices and a bad counter now and then: after every call
// all bytes are those of the model.
TEST_P(StepPoolTest, RandomSequencesAgreeWithTheFunctionalForms) {
  constexpr int64_t kSlots = 4;
  const Context backend = context(2);
  const int sequences = GetParam().name == "cpu" ? 12 : 3;
  std::mt19937 random(5);
  const auto below = [&](int32_t end) { return std::uniform_int_distribution<int32_t>(0, end - 1)(random); };
  for (int sequence = 0; sequence < sequences; ++sequence) {
    PoolModel model(geometry_of(2), kSlots);
    const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, model.geometry(), 1);
    const MirroredPool pool(backend, model.geometry(), kSlots, below(2) == 0 ? LQ_LAYOUT_COMPACT : LQ_LAYOUT_PADDED);
    const MirroredPool wanted(backend, model.geometry(), kSlots, LQ_LAYOUT_COMPACT);
    const MirroredPool seen(backend, model.geometry(), kSlots, LQ_LAYOUT_COMPACT);
    model.write_to(pool);
    for (int call = 0; call < 24; ++call) {
      std::vector<int32_t> order = {1, 2, 3, 0, -7, 4};
      std::shuffle(order.begin(), order.end(), random);
      order.resize(static_cast<size_t>(1 + below(6)));
      if (below(8) == 0) {
        const int64_t slot = 1 + below(3);
        pool.counter(slot, 1) = model.counter(slot, 1) = below(2) == 0 ? 17 : 15;
      }
      if (below(4) == 0) {
        pool.flush(order, basis);
        model.flush(backend, order, basis);
      } else {
        const judge::StepInputs tokens =
            step_inputs_of(judge::StepFamily::kStructured, model.geometry(), std::ssize(order),
                           judge::all_gate_functions()[static_cast<size_t>(below(3))], random());
        StepArguments arguments(backend.info().device, order, tokens,
                                below(2) == 0 ? TokenForm::kPacked : TokenForm::kThreeTensors);
        arguments.step(pool);
        const std::vector<Bfloat16> expected = model.step(backend, order, tokens);
        for (int64_t n = 0; n < tokens.programs(); ++n) {
          ASSERT_TRUE(is_row(arguments.output, n, expected, n)) << "sequence " << sequence << ", call " << call;
        }
      }
      model.write_to(wanted);
      const std::vector<int32_t> slots = {0, 1, 2, 3};
      const judge::CheckpointTensors checkpoints = judge::read_slots(pool.host(), model.geometry(), slots);
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        judge::WindowTensors windows(model.geometry(), 1);
        for (int64_t head = 0; head < 2; ++head) {
          copy_window(model.geometry(), judge::slot_window(pool.host(), slot, head), windows.view().at(0, head));
          seen.counter(slot, head) = pool.counter(slot, head);
        }
        judge::CheckpointTensors one = judge::read_slots(pool.host(), model.geometry(), {&slots[slot], 1});
        judge::write_slot(seen.host(), slot, one, windows, 0);
      }
      ASSERT_EQ(bytes_of(seen), bytes_of(wanted)) << "sequence " << sequence << ", call " << call;
    }
  }
}

LQ_FOR_ALL_BACKENDS(StepPoolTest);

}  // namespace
}  // namespace leapquant::conformance
