// SPDX-License-Identifier: Apache-2.0
//
// The same program gives the same bits: whatever the thread count, batch, position, slot, layout, neighbours and run.
#include <algorithm>

#include "backends.h"

namespace leapquant::conformance {
namespace {

using DeterminismTest = BackendTest;
using ThreadCountTest = BackendTest;

TEST_P(ThreadCountTest, DoesNotMatter) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(12), 9);
  const auto expected = bytes_of(flush_or_die(context(1), inputs));
  for (const int32_t threads : {2, 7, 64}) {
    EXPECT_EQ(bytes_of(flush_or_die(context(threads), inputs)), expected) << threads << " threads";
  }
}

TEST_P(DeterminismTest, RunDoesNotMatter) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 3);
  const Context backend = context(2);
  const auto expected = bytes_of(flush_or_die(backend, inputs));
  for (int run = 0; run < 20; ++run) ASSERT_EQ(bytes_of(flush_or_die(backend, inputs)), expected);
}

TEST_P(DeterminismTest, AloneOrInABatch) {
  for (const int32_t rank : {1, 4, 8}) {
    const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(3, rank), 6);
    const Context backend = context(2);
    judge::FlushInputs together = inputs;
    together.checkpoint = flush_or_die(backend, inputs);
    for (int64_t item = 0; item < inputs.batch; ++item) {
      EXPECT_EQ(bytes_of(flush_or_die(backend, item_of(inputs, item))), bytes_of(item_of(together, item).checkpoint))
          << "rank " << rank << ", item " << item;
    }
  }
}

// [B, H] programs and [B H, 1] programs, and one of them with nobody beside it.
TEST_P(DeterminismTest, HeadOrBatchItem) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(12), 3);
  const Context backend = context(2);
  const judge::FlushInputs heads = single_heads(inputs);
  judge::FlushInputs flushed = heads;
  flushed.checkpoint = flush_or_die(backend, heads);
  EXPECT_EQ(bytes_of(flushed.checkpoint), bytes_of(flush_or_die(backend, inputs)));
  for (const int64_t program : {0, 17, 35}) {
    EXPECT_EQ(bytes_of(flush_or_die(backend, item_of(heads, program))), bytes_of(item_of(flushed, program).checkpoint));
  }
}

TEST_P(DeterminismTest, PoolSlotAndLayoutDoNotMatter) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(12), 4);
  const Context backend = context(2);
  const auto expected = bytes_of(flush_or_die(backend, inputs));
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const std::vector<int32_t> slots = {9, 2, 30, 5};  // any slots, any order
    const MirroredPool pool(backend, inputs.geometry, 32, layout);
    for (size_t item = 0; item < slots.size(); ++item) {
      judge::write_slot(pool.host(), slots[item], inputs, static_cast<int64_t>(item));
      judge::set_counters(pool.host(), slots[item], 16);
    }
    pool.flush({30, 0, 5, 9, -1, 2}, inputs);
    EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, slots)), expected) << "layout " << layout;
  }
}

// Sums run in the same order with every vector width, so instruction sets differ only in whether they fuse
// multiply-adds.
TEST(InstructionSets, WithFusedMultiplyAddGiveTheSameBits) {
  const auto inputs = {inputs_of(judge::Family::kStructured, geometry_of(9), 2),
                       inputs_of(judge::Family::kRandom, geometry_of(9, 8), 2),
                       inputs_of(judge::Family::kPolicy, geometry_of(9, 2), 4)};
  std::vector<std::string> targets;
  for (const BackendUnderTest& backend : backends_under_test()) {
    const bool fused = backend.target == "avx512" || backend.target == "avx2" || backend.target == "neon";
    if (backend.name == "cpu" && fused) targets.push_back(backend.target);
  }
  for (const judge::FlushInputs& input : inputs) {
    for (size_t i = 1; i < targets.size(); ++i) {
      EXPECT_EQ(bytes_of(flush_or_die(Context("cpu", 1, targets[i]), input)),
                bytes_of(flush_or_die(Context("cpu", 1, targets[0]), input)))
          << targets[i] << " and " << targets[0];
    }
  }
}

LQ_FOR_ALL_BACKENDS(DeterminismTest);
LQ_FOR_HOST_BACKENDS(ThreadCountTest);

}  // namespace
}  // namespace leapquant::conformance
