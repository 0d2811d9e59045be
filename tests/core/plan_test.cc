// SPDX-License-Identifier: Apache-2.0
//
// Plans are pure data: printed, and searched for due programs, without running anything.
#include <gtest/gtest.h>

#include <thread>

#include "plan/host_backend.h"
#include "plan/host_step.h"

namespace leapquant {
namespace {

TEST(FlushPlan, PrintsWhatItIs) {
  FlushPlan plan;
  plan.batch = 2;
  EXPECT_EQ(to_string(plan), "flush kda H=32 V=128 K=128 L=16 R=4 8-bit: 64 programs, functional");
  plan.in_place = true;
  plan.due.num_slots = 9;
  EXPECT_EQ(to_string(plan), "flush kda H=32 V=128 K=128 L=16 R=4 8-bit: due programs of 2 indices, 9 slots, in place");
}

TEST(FlushPlan, DueProgramsAreFullWindowsOfNamedSlots) {
  Geometry geometry;
  geometry.num_heads = geometry.num_key_heads = 2;
  int32_t counters[] = {16, 16, 3, 16, 16, 17};  // three slots
  const int32_t indices[] = {1, 0, -5, 3, 2};
  ErrorWord errors;
  FlushPlan plan;
  plan.geometry = geometry;
  plan.batch = 5;
  plan.in_place = true;
  plan.due = {.slot_index = indices,
              .fill_count = {.base = counters, .item_stride = 2, .head_stride = 1},
              .num_slots = 3,
              .errors = &errors};
  std::vector<std::pair<int64_t, int64_t>> found;
  for (int64_t n = 0; n < plan.programs(); ++n) {
    if (const auto due = due_program(plan, n)) found.emplace_back(due->item, due->head);
  }
  const std::vector<std::pair<int64_t, int64_t>> expected = {{1, 1}, {2, 0}};
  EXPECT_EQ(found, expected);
  EXPECT_EQ(errors.first_position[static_cast<int>(ErrorKind::kIndex)], 3);
  EXPECT_EQ(errors.first_position[static_cast<int>(ErrorKind::kNonFinite)], kNoPosition);
}

TEST(StepPlan, PrintsWhatItIs) {
  StepPlan plan;
  plan.batch = 2;
  EXPECT_EQ(to_string(plan), "step kda H=32 V=128 K=128 L=16 R=4 8-bit: 64 programs, functional");
  plan.in_place = true;
  plan.pool.num_slots = 9;
  EXPECT_EQ(to_string(plan), "step kda H=32 V=128 K=128 L=16 R=4 8-bit: 2 indices, 9 slots, in place");
}

// Of one head: what each counter makes of a slot, and where its rows go.
TEST(StepPlan, CountersSayWhichProgramsStepAndWhere) {
  Geometry geometry;
  geometry.num_heads = geometry.num_key_heads = 1;
  int32_t counters[] = {3, 0, 15, 16, 16, 17, -1};  // slots 0 to 6
  std::vector<float> weights(7 * 16, 0.0f);
  weights[4 * 16 + 15] = 0.5f;  // slot 4 was not flushed
  std::vector<Bfloat16> keys(7 * 16 * 128);
  std::vector<Bfloat16> output(8 * 128, Bfloat16{0xFFFF});
  const int32_t indices[] = {0, 1, 2, 3, 4, 5, 6, 7};
  ErrorWord errors;
  StepPlan plan;
  plan.geometry = geometry;
  plan.batch = 8;
  plan.in_place = true;
  plan.window.window_weight = {weights.data(), 16, 16};
  plan.window.window_key = {keys.data(), 16 * 128, 16 * 128};
  plan.window.window_update = plan.window.window_key;
  std::vector<Half> gates(7 * 16 * 128);
  plan.window.window_gate = {gates.data(), 16 * 128, 16 * 128};
  plan.target.output = {output.data(), 128, 128};
  plan.pool = {.slot_index = indices, .fill_count = {counters, 1, 1}, .num_slots = 7, .errors = &errors};
  std::vector<int64_t> entries;
  for (int64_t n = 0; n < plan.programs(); ++n) {
    const auto program = live_program(plan, n);
    entries.push_back(program ? program->entries : -1);
    EXPECT_EQ(output[n * 128].bits, program ? 0xFFFF : 0);
    if (!program) continue;
    EXPECT_EQ(step_rows(plan, *program).key, keys.data() + (n * 16 + program->entries) * 128);
    finish_step(plan, *program, {.finite = n != 2, .token_decay = 1});
    EXPECT_EQ(counters[n], program->entries + 1);
    EXPECT_EQ(weights[n * 16 + program->entries], 1.0f);
  }
  EXPECT_EQ(entries, (std::vector<int64_t>{-1, 0, 15, 0, -1, -1, -1, -1}));
  EXPECT_EQ(errors.first_position[static_cast<int>(ErrorKind::kUnflushed)], 4);
  EXPECT_EQ(errors.first_position[static_cast<int>(ErrorKind::kCounter)], 5);
  EXPECT_EQ(errors.first_position[static_cast<int>(ErrorKind::kIndex)], 7);
  EXPECT_EQ(errors.first_position[static_cast<int>(ErrorKind::kNonFinite)], 2);
}

TEST(ErrorWord, TheSmallestPositionWins) {
  ErrorWord word;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&word, t] {
        for (int64_t position = 1000; position > t; --position) record_error(word, ErrorKind::kCounter, position);
      });
    }
  }
  EXPECT_EQ(word.first_position[static_cast<int>(ErrorKind::kCounter)], 1);
}

TEST(HostMemory, IsZeroedAndRefusesMoreThanThereIs) {
  struct Probe final : HostBackend {
    const BackendState& state() const override { return state_; }
    Status supports(const Geometry&) const override { return {}; }
    Status flush(const FlushPlan&, void*) override { return {}; }
    Status step(const StepPlan&, void*) override { return {}; }
    Status import_state(const StatePlan&, void*) override { return {}; }
    Status export_state(const StatePlan&, void*) override { return {}; }
    Status draft(const DraftPlan&, void*) override { return {}; }
    Status commit(const CommitPlan&, void*) override { return {}; }
    BackendState state_{.name = "probe", .target = "", .threads = 1, .device = {}};
  } probe;
  const Result<void*> huge = probe.allocate(size_t{1} << 60);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), Code::kOutOfMemory);
  const Result<void*> small = probe.allocate(10000);
  ASSERT_TRUE(small.ok());
  for (int i = 0; i < 10000; ++i) ASSERT_EQ(static_cast<const char*>(small.value())[i], 0);
  probe.release(small.value(), 10000);
}

}  // namespace
}  // namespace leapquant
