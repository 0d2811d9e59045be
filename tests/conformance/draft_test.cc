// SPDX-License-Identifier: Apache-2.0
//
// Speculative decoding: what drafts give, what they leave alone, what a commit appends.
#include <algorithm>
#include <climits>
#include <limits>

#include "draft_calls.h"
#include "ref/grown_window.h"
#include "ref/step.h"

namespace leapquant::conformance {
namespace {

constexpr int64_t kHeads = 3;
constexpr int64_t kSlots = 4;

bool same_rows(const std::vector<Bfloat16>& a, int64_t a_row, const std::vector<Bfloat16>& b, int64_t b_row) {
  const int64_t row = kHeads * 128;
  return std::equal(a.begin() + a_row * row, a.begin() + (a_row + 1) * row, b.begin() + b_row * row,
                    [](Bfloat16 x, Bfloat16 y) { return x.bits == y.bits; });
}

class DraftTest : public GatedBackendTest {
 protected:
  judge::StepInputs tokens_of(int64_t count, uint64_t seed, GateFunction function = GateFunction::kSoftplus) const {
    return step_inputs_of(judge::StepFamily::kStructured, geometry(kHeads), count, function, seed);
  }

  std::vector<float> start_basis() const { return inputs_of(judge::Family::kRandom, geometry(kHeads), 1).q0; }

  // Slots of a structured batch whose windows all have `entries` entries.
  MirroredPool pool_at(const Context& context, int32_t entries) const {
    judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry(kHeads), kSlots);
    for (int64_t n = 0; n < inputs.programs(); ++n) {
      const WindowProgram window = inputs.window.view().at(n / kHeads, n % kHeads);
      for (int64_t j = 0; j < 16; ++j) {
        const float weight = gate() == Gate::kKda ? 1.0f : 1.0f / static_cast<float>(entries - j);
        window.window_weight[j] = j < entries ? weight : 0.0f;
        if (j >= entries && window.window_gate != nullptr) {
          std::fill_n(window.window_gate + j * 128, 128, Half{kHalfOne});
        }
      }
      inputs.h[static_cast<size_t>(n)] = entries;
    }
    MirroredPool pool(context, inputs.geometry, kSlots);
    for (int64_t slot = 0; slot < kSlots; ++slot) fill_slot(pool, slot, inputs, slot);
    pool.upload();
    return pool;
  }
};

// Any number of tokens, all of them or some accepted, up to the window's last entry: bytes and outputs of single steps,
// flush of the full window included.
TEST_P(DraftTest, InsideTheWindowIsSingleSteps) {
  const Context backend = context(2);
  const std::vector<int32_t> order = {2, 0, 1, 9};
  for (const auto& [entries, count] : {std::pair{0, 8}, {3, 1}, {5, 4}, {8, 8}, {9, 7}, {15, 1}, {10, 5}}) {
    SCOPED_TRACE(std::to_string(count) + " tokens at " + std::to_string(entries));
    const GateFunction gate = judge::all_gate_functions()[static_cast<size_t>(count) % 3];
    const judge::StepInputs tokens = tokens_of(4 * count, 40, gate);
    const MirroredPool pool = pool_at(backend, entries);
    const MirroredPool model = pool_at(backend, entries);
    DraftArguments arguments(backend.info().device, order, count, tokens, start_basis());
    const auto before = bytes_of(pool);
    arguments.draft(pool);
    ASSERT_EQ(bytes_of(pool), before);
    const std::vector<int32_t> accepted = {count, count, count / 2, count};
    arguments.commit(pool, accepted);
    for (int32_t t = 0; t < count; ++t) {
      std::vector<int32_t> live = order;
      std::vector<int64_t> rows;
      for (int64_t i = 0; i < 4; ++i) {
        rows.push_back(i * count + t);
        if (t >= accepted[static_cast<size_t>(i)]) live[static_cast<size_t>(i)] = 0;
      }
      StepArguments single(backend.info().device, live, gather(tokens, rows));
      single.step_flush(model, arguments.q0);
      for (int64_t i = 0; i < 4; ++i) {
        if (live[static_cast<size_t>(i)] == 0 && order[static_cast<size_t>(i)] != 0) continue;
        ASSERT_TRUE(same_rows(arguments.output, i * count + t, single.output, i))
            << "token " << t << ", position " << i;
      }
    }
    EXPECT_EQ(bytes_of(pool), bytes_of(model));
    EXPECT_EQ(pool.read_errors().flags, model.read_errors().flags);
  }
}

TEST_P(DraftTest, NothingAcceptedLeavesEveryByte) {
  const Context backend = context(2);
  for (const int32_t entries : {0, 7, 15}) {
    const MirroredPool pool = pool_at(backend, entries);
    const auto before = bytes_of(pool);
    DraftArguments arguments(backend.info().device, {3, 1}, 8, tokens_of(16, 50), start_basis());
    arguments.draft(pool);
    EXPECT_EQ(bytes_of(pool), before);
    arguments.commit(pool, {0, 0});
    EXPECT_EQ(bytes_of(pool), before);
    EXPECT_EQ(pool.read_errors().flags, 0u);
  }
}

// Beyond the window's end the tokens attend to all entries: those of the formula in double.
TEST_P(DraftTest, AttendsToMoreEntriesThanAWindowHas) {
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 15);
  const judge::StepInputs tokens = tokens_of(8, 60);
  DraftArguments arguments(backend.info().device, {1}, 8, tokens, start_basis());
  arguments.draft(pool);
  judge::CheckpointTensors checkpoint = judge::read_slots(pool.host(), tokens.geometry, std::vector<int32_t>{1});
  for (int64_t head = 0; head < kHeads; ++head) {
    const DraftProgram record = arguments.record(0, head);
    ref::GrownWindow window(tokens.geometry, judge::slot_window(pool.host(), 1, head), 15, 8);
    for (int64_t t = 0; t < 8; ++t) {
      const ref::StepValues<double> exact =
          ref::step_values<double>(tokens.geometry, tokens.gate, checkpoint.view().at(0, head), window.view(), 15 + t,
                                   tokens.token.view().at(t, head));
      double largest = 0;
      for (const double value : exact.output) largest = std::max(largest, std::abs(value));
      for (int64_t v = 0; v < 128; ++v) {
        const double seen = to_float(arguments.output[(t * kHeads + head) * 128 + v]);
        ASSERT_NEAR(seen, exact.output[v], std::abs(exact.output[v]) / 256 + 1e-4 * largest) << "token " << t;
      }
      StepRows rows{nullptr, record.key + t * 128, record.update + t * 128, nullptr, nullptr, nullptr};
      std::vector<float> log_decay(exact.gates.log_decay.begin(), exact.gates.log_decay.end());
      if (gate() == Gate::kKda) {
        rows.gate = record.gate + t * 128;
        rows.log_decay = log_decay.data();
      }
      window.append(rows, exact.outcome().token_decay);
    }
  }
}

// A commit across the window's end: the first tokens fill it, it is flushed, and the rest begin the next one.
TEST_P(DraftTest, ACommitFlushesAtTheWindowsEnd) {
  const Context backend = context(2);
  const judge::StepInputs tokens = tokens_of(8, 70);
  const MirroredPool pool = pool_at(backend, 13);
  const MirroredPool model = pool_at(backend, 13);
  DraftArguments arguments(backend.info().device, {2}, 8, tokens, start_basis());
  arguments.draft(pool);
  arguments.commit(pool, {7});
  for (int64_t t = 0; t < 3; ++t) {
    StepArguments single(backend.info().device, {2}, gather(tokens, {t}));
    single.step_flush(model, arguments.q0);
    ASSERT_TRUE(same_rows(arguments.output, t, single.output, 0));
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    ASSERT_EQ(model.counter(2, head), 16);
    const DraftProgram record = arguments.record(0, head);
    const WindowProgram window = judge::slot_window(model.host(), 2, head);
    for (int64_t t = 3; t < 7; ++t) {
      std::copy_n(record.key + t * 128, 128, window.window_key + (t - 3) * 128);
      std::copy_n(record.update + t * 128, 128, window.window_update + (t - 3) * 128);
      window.window_weight[t - 3] = 1.0f;
      if (gate() == Gate::kGdn) {
        for (int64_t j = 0; j < t - 3; ++j) window.window_weight[j] *= record.token_decay[t];
        *window.decay *= record.token_decay[t];
        continue;
      }
      std::copy_n(record.gate + t * 128, 128, window.window_gate + (t - 3) * 128);
      for (int64_t k = 0; k < 128; ++k) window.log_decay[k] += record.log_gate[t * 128 + k];
    }
    model.counter(2, head) = 4;
  }
  EXPECT_EQ(bytes_of(pool), bytes_of(model));
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

// A draft goes on from what the last commit left, through flushes, for hundreds of tokens.
TEST_P(DraftTest, DraftsFollowOneAnother) {
  const Context backend = context(2);
  const MirroredPool pool = pool_at(backend, 0);
  int32_t entries = 0;
  for (int32_t round = 0; round < 20; ++round) {
    const int32_t count = 1 + round % 8;
    DraftArguments arguments(backend.info().device, {1, 3}, count, tokens_of(2 * count, 100 + round), start_basis());
    arguments.draft(pool);
    arguments.commit(pool, {count, 0});
    entries = (entries + count) % 16;
    for (int64_t head = 0; head < kHeads; ++head) {
      ASSERT_EQ(pool.counter(1, head) % 16, entries);
      ASSERT_EQ(pool.counter(3, head), 0);
    }
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

TEST_P(DraftTest, ATokenDoesNotSeeLaterOnes) {
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 14);
  const judge::StepInputs tokens = tokens_of(5, 80);
  DraftArguments all(backend.info().device, {1}, 5, tokens, start_basis());
  DraftArguments first(backend.info().device, {1}, 3, gather(tokens, {0, 1, 2}), start_basis());
  all.draft(pool);
  first.draft(pool);
  for (int64_t t = 0; t < 3; ++t) EXPECT_TRUE(same_rows(all.output, t, first.output, t));
  const MirroredPool other = pool_at(backend, 14);
  all.commit(pool, {3});
  first.commit(other, {3});
  EXPECT_EQ(bytes_of(pool), bytes_of(other));
}

// Padding, foreign indices, full windows, counters out of range: zero rows, nothing appended, all recorded twice over.
TEST_P(DraftTest, WhatCannotStepIsReported) {
  const Context backend = context(2);
  const MirroredPool pool = pool_at(backend, 4);
  pool.counter(1, 1) = 16;
  judge::slot_window(pool.host(), 1, 1).window_weight[15] = 1.0f;
  pool.counter(3, 0) = 17;
  const auto before = bytes_of(pool);
  DraftArguments arguments(backend.info().device, {-1, 1, 4, 3, INT_MIN}, 2, tokens_of(10, 90), start_basis());
  arguments.draft(pool);
  EXPECT_EQ(bytes_of(pool), before);
  const auto expect_errors = [&] {
    const lq_pool_errors errors = pool.read_errors();
    EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX | 1u << LQ_ERROR_UNFLUSHED | 1u << LQ_ERROR_COUNTER);
    EXPECT_EQ(errors.first_position[LQ_ERROR_UNFLUSHED], 1);
    EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 2);
    EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 3);
  };
  expect_errors();
  const auto is_zero = [&](int64_t row, int64_t head) {
    const auto first = arguments.output.begin() + (row * kHeads + head) * 128;
    return std::all_of(first, first + 128, [](Bfloat16 value) { return value.bits == 0; });
  };
  for (const int64_t row : {0, 1, 4, 5, 8, 9}) {
    for (int64_t head = 0; head < kHeads; ++head) EXPECT_TRUE(is_zero(row, head));
  }
  for (const int64_t row : {2, 3}) EXPECT_TRUE(!is_zero(row, 0) && is_zero(row, 1) && !is_zero(row, 2));
  for (const int64_t row : {6, 7}) EXPECT_TRUE(is_zero(row, 0) && !is_zero(row, 1) && !is_zero(row, 2));
  arguments.commit(pool, {2, 2, 2, 2, 2});
  expect_errors();
  EXPECT_EQ(pool.counter(1, 0), 6);
  EXPECT_EQ(pool.counter(1, 1), 16);
  EXPECT_EQ(pool.counter(3, 0), 17);
  EXPECT_EQ(pool.counter(3, 2), 6);
}

// A window that has moved on since the draft takes nothing from it.
TEST_P(DraftTest, ADraftIsCommittedOnce) {
  const Context backend = context(2);
  const MirroredPool pool = pool_at(backend, 4);
  DraftArguments arguments(backend.info().device, {2, 1}, 3, tokens_of(6, 95), start_basis());
  arguments.draft(pool);
  arguments.commit(pool, {0, 2});
  EXPECT_EQ(pool.read_errors().flags, 0u);
  const auto after = bytes_of(pool);
  arguments.commit(pool, {0, 1});
  EXPECT_EQ(bytes_of(pool), after);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_COUNTER);
  EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 1);
}

// Only what becomes part of the state is worth a report.
TEST_P(DraftTest, NonFiniteTokensAreReportedWhenTheyAreAccepted) {
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 4);
  judge::StepInputs tokens = tokens_of(6, 96);
  tokens.token.vx[(static_cast<size_t>(3 + 1) * kHeads + 1) * 128 + 5] = Bfloat16{0x7FC0};  // position 1, token 1
  DraftArguments arguments(backend.info().device, {2, 1}, 3, tokens, start_basis());
  arguments.draft(pool);
  EXPECT_EQ(pool.read_errors().flags, 0u);
  arguments.commit(pool, {3, 1});
  EXPECT_EQ(pool.read_errors().flags, 0u);
  const MirroredPool other = pool_at(backend, 4);
  arguments.draft(other);
  arguments.commit(other, {3, 2});
  const lq_pool_errors errors = other.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 1);
}

TEST_P(DraftTest, ThreadsAndPlacesDoNotMatter) {
  const judge::StepInputs tokens = tokens_of(12, 97);
  std::vector<std::vector<unsigned char>> seen;
  for (const int32_t threads : {1, 2, 7}) {
    const Context backend = context(threads);
    const MirroredPool pool = pool_at(backend, 13);
    DraftArguments arguments(backend.info().device, {3, 1, 2}, 4, tokens, start_basis());
    arguments.draft(pool);
    arguments.commit(pool, {4, 2, 3});
    seen.push_back(bytes_of(pool));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(seen[0], seen[2]);
}

TEST_P(DraftTest, NoIndicesIsANoOp) {
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 4);
  const auto before = bytes_of(pool);
  DraftArguments arguments(backend.info().device, {}, 4, gather(tokens_of(1, 1), {}), start_basis());
  arguments.draft(pool);
  arguments.commit(pool, {});
  EXPECT_EQ(bytes_of(pool), before);
}

TEST_P(DraftTest, RefusesByName) {
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 4);
  const auto before = bytes_of(pool);
  DraftArguments arguments(backend.info().device, {1, 2}, 4, tokens_of(8, 98), start_basis());
  const auto expect_refusal = [&](lq_status status, const char* word) {
    EXPECT_EQ(status, LQ_INVALID_ARGUMENT);
    EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << lq_last_error();
    pool.download();
    EXPECT_EQ(bytes_of(pool), before);
  };
  const auto draft_with = [&](lq_tensor DraftArguments::*member, const lq_tensor& wrong, const char* word) {
    const lq_tensor right = arguments.*member;
    arguments.*member = wrong;
    expect_refusal(arguments.enqueue_draft(pool.pool()), word);
    arguments.*member = right;
  };
  const auto commit_with = [&](lq_tensor DraftArguments::*member, const lq_tensor& wrong, const char* word) {
    const lq_tensor right = arguments.*member;
    arguments.*member = wrong;
    expect_refusal(arguments.enqueue_commit(pool.pool()), word);
    arguments.*member = right;
  };
  for (const int32_t count : {0, -1, 9, INT_MAX}) {
    arguments.token_count = count;
    expect_refusal(arguments.enqueue_draft(pool.pool()), "tokens: expected 1 to 8");
    expect_refusal(arguments.enqueue_commit(pool.pool()), "tokens: expected 1 to 8");
  }
  arguments.token_count = 3;
  expect_refusal(arguments.enqueue_draft(pool.pool()), "'qx'");
  arguments.token_count = 4;

  lq_tensor wrong = arguments.scratch;
  --wrong.shape[0];
  draft_with(&DraftArguments::scratch, wrong, "tensor 'scratch': expected int8 of at least");
  commit_with(&DraftArguments::scratch, wrong, "tensor 'scratch': expected int8 of at least");
  wrong = arguments.scratch;
  wrong.dtype = LQ_FLOAT32;
  draft_with(&DraftArguments::scratch, wrong, "'scratch'");
  wrong = arguments.scratch;
  wrong.data = pool.device().raw.data;
  draft_with(&DraftArguments::scratch, wrong, "overlap with 'pool.raw'");
  commit_with(&DraftArguments::scratch, wrong, "overlap with 'pool.raw'");
  wrong = arguments.scratch;
  wrong.data = arguments.o.data;
  draft_with(&DraftArguments::scratch, wrong, "overlap with 'o'");
  wrong = arguments.o;
  wrong.shape[0] = 2;
  draft_with(&DraftArguments::o, wrong, "'o'");
  wrong = arguments.o;
  wrong.data = arguments.token.vx.data;
  draft_with(&DraftArguments::o, wrong, "overlap");

  wrong = arguments.accepted;
  wrong.shape[0] = 1;
  commit_with(&DraftArguments::accepted, wrong, "as many entries as 'idx' has, 2, got 1");
  wrong = arguments.q0;
  wrong.shape[1] = 3;
  commit_with(&DraftArguments::q0, wrong, "'q0'");
  for (const int32_t count : {-1, 5}) {
    if (!GetParam().backend.on_host()) break;  // reported: see below
    arguments.accepted_values[1] = count;
    arguments.upload();
    expect_refusal(arguments.enqueue_commit(pool.pool()), "tensor 'accepted': expected 0 to 4 tokens");
  }
  EXPECT_EQ(lq_pool_draft(nullptr, &arguments.indices, 4, &arguments.token, nullptr, &arguments.scratch, &arguments.o,
                          nullptr),
            LQ_INVALID_ARGUMENT);
  EXPECT_EQ(
      lq_pool_commit(pool.pool().get(), &arguments.indices, 4, nullptr, &arguments.accepted, &arguments.q0, nullptr),
      LQ_INVALID_ARGUMENT);
  lq_geometry public_shape = judge::public_geometry(geometry_of(2));
  int64_t bytes = -1;
  EXPECT_EQ(lq_draft_bytes(&public_shape, -1, 4, &bytes), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(lq_draft_bytes(&public_shape, INT64_MAX, 4, &bytes), LQ_INVALID_ARGUMENT);
  EXPECT_EQ(bytes, -1);
  EXPECT_EQ(lq_draft_bytes(&public_shape, 3, 8, &bytes), LQ_OK);
  EXPECT_EQ(bytes, 3 * 2 * (8 * 1280 + 528));
  public_shape = judge::public_geometry(gdn_geometry(2));
  EXPECT_EQ(lq_draft_bytes(&public_shape, 3, 8, &bytes), LQ_OK);
  EXPECT_EQ(bytes, 3 * 2 * (8 * 520 + 96));
}

// A device's memory is not looked at before the call: sequences with such a number keep every byte.
TEST_P(DraftTest, NumbersOfAcceptedTokensOutOfRangeAreReportedByDevices) {
  if (GetParam().backend.on_host()) return;  // refused: see above
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 14);
  const auto before = bytes_of(pool);
  DraftArguments arguments(backend.info().device, {2, 1, 3}, 4, tokens_of(12, 99), start_basis());
  arguments.draft(pool);
  arguments.commit(pool, {0, 5, -1});
  EXPECT_EQ(bytes_of(pool), before);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_COUNTER);
  EXPECT_EQ(errors.first_position[LQ_ERROR_COUNTER], 1);
}

// An index beyond the pool is reported whether it accepts tokens or not.
TEST_P(DraftTest, IndicesBeyondThePoolAreReported) {
  const Context backend = context();
  const MirroredPool pool = pool_at(backend, 4);
  const auto before = bytes_of(pool);
  DraftArguments arguments(backend.info().device, {1, 4}, 2, tokens_of(4, 100), start_basis());
  arguments.draft(pool);
  EXPECT_EQ(pool.read_errors().first_position[LQ_ERROR_INDEX], 1);
  arguments.commit(pool, {0, 0});
  EXPECT_EQ(bytes_of(pool), before);
  EXPECT_EQ(pool.read_errors().first_position[LQ_ERROR_INDEX], 1);
}

// What is due when a commit comes, and what a flush has left, is none of its business unless tokens go there.
TEST_P(DraftTest, ACommitFlushesOnlyWhatItFills) {
  const Context backend = context(2);
  const MirroredPool pool = pool_at(backend, 15);
  const judge::StepInputs tokens = tokens_of(6, 101);
  // Slot 1 has been flushed, and slot 2 is due in one head.
  StepArguments single(backend.info().device, {1}, gather(tokens, {0}));
  DraftArguments arguments(backend.info().device, {1, 2, 3}, 2, tokens, start_basis());
  single.step_flush(pool, arguments.q0);
  pool.counter(2, 1) = 16;
  judge::slot_window(pool.host(), 2, 1).window_weight[15] = 1.0f;
  arguments.draft(pool);
  EXPECT_EQ(pool.read_errors().flags, 1u << LQ_ERROR_UNFLUSHED);
  const auto before = bytes_of(pool);
  arguments.commit(pool, {0, 0, 0});
  EXPECT_EQ(bytes_of(pool), before);
  EXPECT_EQ(pool.read_errors().flags, 0u);
  const std::vector<int32_t> untouched = {1, 2};
  const auto checkpoints = bytes_of(judge::read_slots(pool.host(), tokens.geometry, untouched));
  arguments.commit(pool, {0, 0, 2});
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), tokens.geometry, untouched)), checkpoints);
  for (int64_t head = 0; head < kHeads; ++head) {
    EXPECT_EQ(pool.counter(1, head), 16);
    EXPECT_EQ(pool.counter(2, head), head == 1 ? 16 : 15);
    EXPECT_EQ(pool.counter(3, head), 1);
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

LQ_FOR_ALL_BACKENDS_AND_GATES(DraftTest);

}  // namespace
}  // namespace leapquant::conformance
