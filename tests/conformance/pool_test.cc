// SPDX-License-Identifier: Apache-2.0
//
// The pool: what is new, what is due, what stays, what is reported.
#include <rapidcheck.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "backends.h"

namespace leapquant::conformance {
namespace {

using PoolTest = BackendTest;

TEST_P(PoolTest, FreshSlotsAreZeroStates) {
  const Geometry geometry = geometry_of(3);
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry, 3);
  const Context backend = context();
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    filled_pool(backend, inputs, 4, layout);  // a last tenant, whose memory the new pool may be given
    const MirroredPool pool(backend, geometry, 4, layout);
    const lq_pool_tensors t = pool.host();
    for (int64_t i = 0; i < t.raw.shape[0]; ++i) ASSERT_EQ(static_cast<const uint32_t*>(t.raw.data)[i], 0u);
    for (int64_t i = 0; i < 4 * 3 * 16 * 128; ++i) {
      ASSERT_EQ(static_cast<const uint16_t*>(t.kbuf.data)[i], 0);
      ASSERT_EQ(static_cast<const uint16_t*>(t.ubuf.data)[i], 0);
      ASSERT_EQ(static_cast<const uint16_t*>(t.gbuf.data)[i], 0x3C00);
    }
    for (int64_t i = 0; i < 4 * 3 * 16; ++i) ASSERT_EQ(static_cast<const float*>(t.w.data)[i], 0.0f);
    for (int64_t i = 0; i < 4 * 3 * 128; ++i) ASSERT_EQ(static_cast<const float*>(t.pcum.data)[i], 0.0f);
    for (int64_t i = 0; i < 4 * 3; ++i) ASSERT_EQ(static_cast<const int32_t*>(t.hcnt.data)[i], 0);

    const auto before = bytes_of(pool);
    const std::vector<int32_t> all = {0, 1, 2, 3};
    pool.flush(all, inputs);
    EXPECT_EQ(bytes_of(pool), before);  // nothing is due
  }
}

TEST_P(PoolTest, PublishedBytesOfTheLayouts) {
  const Context backend = context();
  const Pool padded(backend, judge::public_geometry(geometry_of(32)), 3, LQ_LAYOUT_PADDED);
  const lq_pool_tensors p = padded.tensors();
  EXPECT_EQ(p.raw.shape[0] * 4, 49152 + 3 * 33 * 65536);
  const auto offset = [](const lq_pool_tensors& t, const lq_tensor& view) {
    return static_cast<char*>(view.data) - static_cast<char*>(t.raw.data);
  };
  EXPECT_EQ(offset(p, p.codes), 49152);
  EXPECT_EQ(offset(p, p.s_k), 49152 + 16384);
  EXPECT_EQ(offset(p, p.s_v), 49152 + 16896);
  EXPECT_EQ(offset(p, p.uq), 49152 + 17408);
  EXPECT_EQ(p.codes.strides[1], 65536);
  EXPECT_EQ(p.codes.strides[0], 33 * 65536);
  EXPECT_EQ(p.uq.shape[3], 256);
  const Pool compact(backend, judge::public_geometry(geometry_of(32)), 3);
  const lq_pool_tensors c = compact.tensors();
  EXPECT_EQ(c.raw.shape[0] * 4, 3 * 32 * 19456);
  EXPECT_EQ(offset(c, c.codes), 0);
  EXPECT_EQ(c.codes.strides[1], 19456);
}

TEST_P(PoolTest, OnlyAFullWindowIsDue) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(8), 2);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 3);
  const lq_pool_tensors t = pool.host();
  const int32_t counters[] = {0, 15, 16, 17, -1, INT_MAX, INT_MIN, 1};
  std::copy(std::begin(counters), std::end(counters), &pool.counter(1, 0));
  judge::set_counters(t, 2, 3);
  const judge::CheckpointTensors expected = flush_or_die(backend, inputs);

  const auto before = bytes_of(pool);
  const std::vector<int32_t> slots = {1, 2};
  const judge::CheckpointTensors old = judge::read_slots(t, inputs.geometry, slots);
  const std::vector<int32_t> order = {1, 2};
  pool.flush(order, inputs);
  EXPECT_TRUE(std::equal(std::begin(counters), std::end(counters), &pool.counter(1, 0)));  // never written

  judge::CheckpointTensors wanted = old;
  copy_program(expected, 2, wanted);  // head 2 of item 0
  EXPECT_EQ(bytes_of(judge::read_slots(t, inputs.geometry, slots)), bytes_of(wanted));
  EXPECT_NE(bytes_of(pool), before);
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

TEST_P(PoolTest, AFlushResetsTheWindowAndNothingElseOfIt) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 2);
  const lq_pool_tensors t = pool.host();
  pool.counter(1, 1) = 5;  // head 1 is not due
  const std::vector<int32_t> order = {1};
  pool.flush(order, inputs);
  const auto* w = static_cast<const float*>(t.w.data) + t.w.strides[0];
  const auto* gates = static_cast<const uint16_t*>(t.gbuf.data) + t.gbuf.strides[0];
  const auto* pcum = static_cast<const float*>(t.pcum.data) + t.pcum.strides[0];
  const auto* keys = static_cast<const uint16_t*>(t.kbuf.data) + t.kbuf.strides[0];
  const auto* updates = static_cast<const uint16_t*>(t.ubuf.data) + t.ubuf.strides[0];
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(w[i], 0.0f);
    EXPECT_EQ(w[16 + i], inputs.window.w[16 + i]);
  }
  for (size_t i = 0; i < 2048; ++i) {
    ASSERT_EQ(gates[i], 0x3C00);
    ASSERT_EQ(gates[2048 + i], inputs.window.gbuf[2048 + i].bits);
    ASSERT_EQ(keys[i], inputs.window.kbuf[i].bits);
    ASSERT_EQ(updates[i], inputs.window.ubuf[i].bits);
  }
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(pcum[i], 0.0f);
    EXPECT_EQ(pcum[128 + i], inputs.window.pcum[128 + i]);
  }
}

TEST_P(PoolTest, ASecondFlushQuantizesAgain) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 2);
  const std::vector<int32_t> order = {1};
  pool.flush(order, inputs);
  // The functional form on the flushed checkpoint with an empty window gives what the second flush must.
  judge::FlushInputs again = inputs;
  again.checkpoint = judge::read_slots(pool.host(), inputs.geometry, order);
  std::fill(again.window.w.begin(), again.window.w.end(), 0.0f);
  std::fill(again.window.gbuf.begin(), again.window.gbuf.end(), Half{kHalfOne});
  std::fill(again.window.pcum.begin(), again.window.pcum.end(), 0.0f);
  pool.flush(order, inputs);
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, order)), bytes_of(flush_or_die(backend, again)));
}

TEST_P(PoolTest, PaddingAndForeignIndices) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 3);
  const Context backend = context(2);
  const MirroredPool pool = filled_pool(backend, inputs, 4);
  judge::write_slot(pool.host(), 0, inputs, 0);
  judge::set_counters(pool.host(), 0, 16);
  const std::vector<int32_t> others = {0, 1, 3};
  const auto before = bytes_of(judge::read_slots(pool.host(), inputs.geometry, others));
  const std::vector<int32_t> order = {0, 2, 0, -1, 4, INT_MAX, INT_MIN};
  pool.flush(order, inputs);
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, others)), before);
  const std::vector<int32_t> changed = {2};
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, changed)),
            bytes_of(flush_or_die(backend, item_of(inputs, 1))));
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
  EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 4);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], -1);
  EXPECT_EQ(pool.read_errors().flags, 0u);  // reading clears
}

TEST_P(PoolTest, BatchLongerThanThePool) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 3);
  const std::vector<int32_t> order = {1, 2, 0, 0, 0, 0, 0, 0};
  pool.flush(order, inputs);
  const std::vector<int32_t> slots = {1, 2};
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, slots)), bytes_of(flush_or_die(backend, inputs)));
}

TEST_P(PoolTest, NoIndicesIsANoOp) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 2);
  const auto before = bytes_of(pool);
  pool.flush({}, inputs);
  EXPECT_EQ(bytes_of(pool), before);
}

TEST_P(PoolTest, DuplicatesAreReportedOnRequest) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  const Context backend = context();
  const MirroredPool pool = filled_pool(backend, inputs, 4);
  const std::vector<int32_t> fine = {2, 0, 0, -1, -1, 1, 3};
  EXPECT_NO_THROW(pool.check_indices(fine));
  const std::vector<int32_t> twice = {2, 0, 3, 1, 3, 2, 1};
  try {
    pool.check_indices(twice);
    FAIL() << "not reported";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), LQ_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), "idx: slot 3 stands at positions 2 and 4");
  }
  // The operation itself does not hang and leaves the other slots alone.
  const std::vector<int32_t> other = {2};
  const auto before = bytes_of(judge::read_slots(pool.host(), inputs.geometry, other));
  const std::vector<int32_t> same = {1, 1};
  pool.flush(same, inputs);
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, other)), before);
}

TEST_P(PoolTest, NonFiniteStatesAreReportedAndContained) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(3), 4);
  const Context backend = context(2);
  const MirroredPool pool = filled_pool(backend, inputs, 5);
  auto* s_k = static_cast<float*>(pool.host().s_k.data);
  const auto& strides = pool.host().s_k.strides;
  s_k[2 * strides[0] + 1 * strides[1] + 9] = std::numeric_limits<float>::quiet_NaN();
  s_k[4 * strides[0] + 2 * strides[1]] = std::numeric_limits<float>::infinity();
  pool.counter(3, 0) = 7;  // not due: untouched and unreported, whatever it holds
  s_k[3 * strides[0]] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int32_t> order = {1, 3, 4, 2};
  pool.flush(order, inputs);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 2);
  const std::vector<int32_t> clean = {1};
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, clean)),
            bytes_of(flush_or_die(backend, item_of(inputs, 0))));
}

TEST_P(PoolTest, CallerOwnedMemory) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const Context backend = context();
  const lq_geometry geometry = judge::public_geometry(inputs.geometry);
  const MirroredPool owner = filled_pool(backend, inputs, 2);
  const lq_pool_tensors memory = owner.device();
  const auto before = bytes_of(owner);
  {
    const MirroredPool guest(backend, {geometry, LQ_LAYOUT_COMPACT, 2, &memory, LQ_POOL_KEEP_CONTENTS});
    EXPECT_EQ(bytes_of(guest), before);
    const std::vector<int32_t> order = {1};
    guest.flush(order, inputs);
    owner.download();
    EXPECT_EQ(bytes_of(judge::read_slots(owner.host(), inputs.geometry, order)),
              bytes_of(flush_or_die(backend, inputs)));
  }
  const MirroredPool fresh(backend, inputs.geometry, 2);
  const MirroredPool guest(backend, {geometry, LQ_LAYOUT_COMPACT, 2, &memory, LQ_POOL_DEFAULT});
  EXPECT_EQ(bytes_of(guest), bytes_of(fresh));
}

TEST_P(PoolTest, OutlivesItsContext) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  auto backend = std::make_unique<Context>(context(2));
  const MirroredPool pool = filled_pool(*backend, inputs, 2);
  const auto expected = bytes_of(flush_or_die(*backend, inputs));
  backend.reset();
  const std::vector<int32_t> order = {1};
  pool.flush(order, inputs);
  EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, order)), expected);
}

// Any indices, any counters, any layout: exactly the due programs change, to what the functional form gives.
TEST_P(PoolTest, RandomSelections) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(3), 6);
  const Context backend = context(2);
  const judge::CheckpointTensors flushed = flush_or_die(backend, inputs);
  const bool held = rc::check("selections", [&] {
    const auto layout = *rc::gen::element(LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED);
    const MirroredPool pool = filled_pool(backend, inputs, 7, layout);
    const lq_pool_tensors t = pool.host();
    const auto counters = *rc::gen::container<std::vector<int32_t>>(21, rc::gen::element(0, 3, 15, 16, 16, 17, -1));
    std::copy(counters.begin(), counters.end(), static_cast<int32_t*>(t.hcnt.data));
    auto order = *rc::gen::unique<std::vector<int32_t>>(rc::gen::inRange<int32_t>(-3, 10));
    const std::vector<int32_t> slots = {1, 2, 3, 4, 5, 6};
    judge::CheckpointTensors expected = judge::read_slots(t, inputs.geometry, slots);
    const std::set<int32_t> named(order.begin(), order.end());
    for (size_t item = 0; item < 6; ++item) {
      for (size_t head = 0; head < 3; ++head) {
        if (named.count(static_cast<int32_t>(item + 1)) == 0 || counters[(item + 1) * 3 + head] != 16) continue;
        const auto program = static_cast<int64_t>(item * 3 + head);
        copy_program(flushed, program, expected);
      }
    }
    pool.flush(order, inputs);
    RC_ASSERT(bytes_of(judge::read_slots(t, inputs.geometry, slots)) == bytes_of(expected));
    RC_ASSERT(std::equal(counters.begin(), counters.end(), static_cast<const int32_t*>(t.hcnt.data)));
  });
  EXPECT_TRUE(held);
}

using LargePoolTest = BackendTest;

// Host memory takes only the pages that are touched. (On a device: see tests/cuda.)
TEST_P(LargePoolTest, OffsetsBeyond32Bits) {
  constexpr int32_t kSlots = 33000;  // of 131,072 bytes
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(1), 2);
  const Context backend = context();
  const Pool pool(backend, judge::public_geometry(inputs.geometry), kSlots, LQ_LAYOUT_PADDED);
  const lq_pool_tensors t = pool.tensors();
  ASSERT_GT(t.raw.shape[0] * 4, int64_t{1} << 32);
  const std::vector<int32_t> slots = {kSlots - 1, 1};
  for (int64_t item = 0; item < 2; ++item) {
    judge::write_slot(t, slots[static_cast<size_t>(item)], inputs, item);
    judge::set_counters(t, slots[static_cast<size_t>(item)], 16);
  }
  const InplaceArguments arguments(t.raw.device, slots, inputs);
  pool.flush_inplace(arguments.indices, arguments.q0);
  EXPECT_EQ(bytes_of(judge::read_slots(t, inputs.geometry, slots)), bytes_of(flush_or_die(backend, inputs)));
}

TEST(PoolSizes, TheFiguresOfTheFormat) {
  for (const auto& [rank, bytes] : {std::pair(1, 17920), {2, 18432}, {4, 19456}, {8, 21504}}) {
    const lq_geometry geometry = judge::public_geometry(geometry_of(1, rank));
    lq_pool_sizes sizes{};
    check(lq_pool_size(&geometry, LQ_LAYOUT_COMPACT, 1, &sizes));
    EXPECT_EQ(sizes.checkpoint_bytes_per_slot, bytes);
    EXPECT_EQ(sizes.window_bytes_per_slot, 12864 + 4);
    EXPECT_EQ(sizes.fp32_bytes_per_slot, 65536);
  }
}

TEST(PoolSizes, SlotsThatFitAreTheMost) {
  const lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  const auto total = [&](lq_layout layout, int64_t slots) {
    lq_pool_sizes sizes{};
    check(lq_pool_size(&geometry, layout, slots, &sizes));
    return sizes.raw_bytes + sizes.window_bytes;
  };
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    for (const int64_t bytes : {int64_t{0}, int64_t{1} << 20, int64_t{1} << 30, int64_t{80'000'000'000}}) {
      int64_t slots = -1;
      check(lq_pool_slots_in(&geometry, layout, bytes, &slots));
      if (slots > 0) {
        EXPECT_LE(total(layout, slots), bytes);
      }
      EXPECT_GT(total(layout, slots + 1), bytes);
    }
  }
}

LQ_FOR_ALL_BACKENDS(PoolTest);
LQ_FOR_HOST_BACKENDS(LargePoolTest);

}  // namespace
}  // namespace leapquant::conformance
