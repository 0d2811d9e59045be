// SPDX-License-Identifier: Apache-2.0
//
// Pools in device memory: what is due, what stays, what is reported.
#include <algorithm>
#include <climits>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include "device.h"

namespace leapquant::cuda_test {
namespace {

class PoolTest : public DeviceTest {};

void copy_program(const judge::CheckpointTensors& from, int64_t program, judge::CheckpointTensors& to,
                  int64_t to_program) {
  const int64_t factors = int64_t{from.geometry.rank} * 128;
  std::copy_n(from.codes.begin() + program * 16384, 16384, to.codes.begin() + to_program * 16384);
  std::copy_n(from.s_k.begin() + program * 128, 128, to.s_k.begin() + to_program * 128);
  std::copy_n(from.s_v.begin() + program * 128, 128, to.s_v.begin() + to_program * 128);
  std::copy_n(from.u.begin() + program * factors, factors, to.u.begin() + to_program * factors);
  std::copy_n(from.q.begin() + program * factors, factors, to.q.begin() + to_program * factors);
}

TEST_F(PoolTest, FreshSlotsAreZeroStates) {
  const Context context("cuda");
  const Geometry geometry = geometry_of(3);
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    MirroredPool pool(context, geometry, 4, layout);
    const lq_pool_tensors& t = pool.host();
    for (int64_t i = 0; i < t.raw.shape[0]; ++i) ASSERT_EQ(static_cast<const uint32_t*>(t.raw.data)[i], 0u);
    for (int64_t i = 0; i < 4 * 3 * 16 * 128; ++i) ASSERT_EQ(static_cast<const uint16_t*>(t.gbuf.data)[i], 0x3C00);
    for (int64_t i = 0; i < 4 * 3; ++i) ASSERT_EQ(static_cast<const int32_t*>(t.hcnt.data)[i], 0);
    const auto before = pool.bytes();
    const InplaceArguments all({0, 1, 2, 3}, inputs_of(judge::Family::kRandom, geometry, 1));
    pool.pool().flush_inplace(all.indices, all.start_basis);
    EXPECT_EQ(pool.bytes(), before);
  }
}

TEST_F(PoolTest, OnlyAFullWindowIsDue) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(8), 2);
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const auto pool = filled_pool(context, inputs, 3, layout);
    const int32_t counters[] = {0, 15, 16, 17, -1, INT_MAX, INT_MIN, 1};
    for (int head = 0; head < 8; ++head) pool->counter(1, head) = counters[head];
    judge::set_counters(pool->host(), 2, 3);
    pool->upload();
    const std::vector<int32_t> slots = {1, 2};
    judge::CheckpointTensors wanted = judge::read_slots(pool->host(), inputs.geometry, slots);
    copy_program(flush_or_die(context, inputs), 2, wanted, 2);
    const InplaceArguments arguments(slots, inputs);
    pool->pool().flush_inplace(arguments.indices, arguments.start_basis);
    pool->download();
    for (int head = 0; head < 8; ++head) EXPECT_EQ(pool->counter(1, head), counters[head]);
    EXPECT_EQ(bytes_of(judge::read_slots(pool->host(), inputs.geometry, slots)), bytes_of(wanted));
    EXPECT_EQ(pool->pool().read_errors().flags, 0u);
  }
}

TEST_F(PoolTest, AFlushResetsTheWindowAndNothingElseOfIt) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const auto pool = filled_pool(context, inputs, 2);
  pool->counter(1, 1) = 5;  // head 1 is not due
  pool->upload();
  const InplaceArguments arguments({1}, inputs);
  pool->pool().flush_inplace(arguments.indices, arguments.start_basis);
  pool->download();
  const lq_pool_tensors& t = pool->host();
  const auto* w = static_cast<const float*>(t.w.data) + t.w.strides[0];
  const auto* gates = static_cast<const uint16_t*>(t.gbuf.data) + t.gbuf.strides[0];
  const auto* pcum = static_cast<const float*>(t.pcum.data) + t.pcum.strides[0];
  const auto* keys = static_cast<const uint16_t*>(t.kbuf.data) + t.kbuf.strides[0];
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(w[i], 0.0f);
    EXPECT_EQ(w[16 + i], inputs.window.w[16 + i]);
  }
  for (size_t i = 0; i < 2048; ++i) {
    ASSERT_EQ(gates[i], 0x3C00);
    ASSERT_EQ(gates[2048 + i], inputs.window.gbuf[2048 + i].bits);
    ASSERT_EQ(keys[i], inputs.window.kbuf[i].bits);
  }
  for (size_t i = 0; i < 128; ++i) {
    EXPECT_EQ(pcum[i], 0.0f);
    EXPECT_EQ(pcum[128 + i], inputs.window.pcum[128 + i]);
  }
}

TEST_F(PoolTest, PaddingAndForeignIndices) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 3);
  const auto pool = filled_pool(context, inputs, 4);
  const InplaceArguments arguments({0, 2, 0, -1, 4, INT_MAX}, inputs);
  const std::vector<int32_t> slots = {1, 2, 3};
  judge::CheckpointTensors wanted = judge::read_slots(pool->host(), inputs.geometry, slots);
  const judge::CheckpointTensors flushed = flush_or_die(context, inputs);
  for (const int64_t program : {2, 3}) copy_program(flushed, program, wanted, program);
  pool->pool().flush_inplace(arguments.indices, arguments.start_basis);
  pool->download();
  EXPECT_EQ(bytes_of(judge::read_slots(pool->host(), inputs.geometry, slots)), bytes_of(wanted));
  const lq_pool_errors errors = pool->pool().read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
  EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 4);
  EXPECT_EQ(pool->pool().read_errors().flags, 0u);

  const InplaceArguments twice({1, 3, 1}, inputs);
  EXPECT_THROW(pool->pool().check_indices(twice.indices), Error);
  const InplaceArguments none({}, inputs);
  pool->pool().flush_inplace(none.indices, none.start_basis);
  check_cuda(cudaDeviceSynchronize());
}

TEST_F(PoolTest, NonFiniteStatesAreReported) {
  const Context context("cuda");
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 3);
  inputs.checkpoint.s_v[6 * 128] = std::numeric_limits<float>::quiet_NaN();  // item 1
  inputs.window.pcum[11 * 128] = std::numeric_limits<float>::infinity();     // item 2
  const auto pool = filled_pool(context, inputs, 4);
  const InplaceArguments arguments({1, 3, 2}, inputs);
  pool->pool().flush_inplace(arguments.indices, arguments.start_basis);
  const lq_pool_errors errors = pool->pool().read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 1);
}

TEST_F(PoolTest, CallerOwnedMemory) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const auto owner = filled_pool(context, inputs, 2);
  const lq_pool_tensors memory = owner->pool().tensors();
  const Pool guest(context,
                   {judge::public_geometry(inputs.geometry), LQ_LAYOUT_COMPACT, 2, &memory, LQ_POOL_KEEP_CONTENTS});
  const InplaceArguments arguments({1}, inputs);
  guest.flush_inplace(arguments.indices, arguments.start_basis);
  owner->download();
  const std::vector<int32_t> slots = {1};
  EXPECT_EQ(bytes_of(judge::read_slots(owner->host(), inputs.geometry, slots)),
            bytes_of(flush_or_die(context, inputs)));
}

// Any indices, counters and layout, over several scans of the counters: exactly the due programs change, to what the
// functional form gives.
TEST_F(PoolTest, RandomSelections) {
  const Context context("cuda");
  std::mt19937_64 random(5);
  for (const auto& [heads, batch] : {std::pair<int32_t, int64_t>{3, 6}, {96, 70}}) {
    const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(heads), batch);
    const judge::CheckpointTensors flushed = flush_or_die(context, inputs);
    std::vector<int32_t> slots(static_cast<size_t>(batch));
    std::iota(slots.begin(), slots.end(), 1);
    for (int round = 0; round < (heads == 3 ? 30 : 2); ++round) {
      const auto pool = filled_pool(context, inputs, batch + 1, round % 2 == 0 ? LQ_LAYOUT_COMPACT : LQ_LAYOUT_PADDED);
      const uint64_t one_in = 1 + random() % 16;
      for (int64_t slot = 0; slot <= batch; ++slot) {
        for (int32_t head = 0; head < heads; ++head) {
          const int32_t other[] = {0, 3, 15, 17, -1};
          pool->counter(slot, head) = random() % one_in == 0 ? 16 : other[random() % 5];
        }
      }
      pool->upload();
      judge::CheckpointTensors wanted = judge::read_slots(pool->host(), inputs.geometry, slots);
      std::vector<int32_t> order = slots;
      std::shuffle(order.begin(), order.end(), random);
      order.resize(order.size() - order.size() / 4);
      order.insert(order.begin() + static_cast<int64_t>(order.size() / 2), {0, -3, static_cast<int32_t>(batch) + 1});
      for (const int32_t slot : order) {
        if (slot <= 0 || slot > batch) continue;
        for (int32_t head = 0; head < heads; ++head) {
          const int64_t program = int64_t{slot - 1} * heads + head;
          if (pool->counter(slot, head) == 16) copy_program(flushed, program, wanted, program);
        }
      }
      const InplaceArguments arguments(order, inputs);
      pool->pool().flush_inplace(arguments.indices, arguments.start_basis);
      pool->download();
      ASSERT_EQ(bytes_of(judge::read_slots(pool->host(), inputs.geometry, slots)), bytes_of(wanted)) << round;
    }
  }
}

TEST_F(PoolTest, AFailedAllocationLeavesNothingBehind) {
  const Context context("cuda");
  EXPECT_THROW(
      {
        try {
          const Pool huge(context, judge::public_geometry(geometry_of(32)), 1 << 20);
        } catch (const Error& error) {
          EXPECT_EQ(error.status(), LQ_OUT_OF_MEMORY);
          throw;
        }
      },
      Error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const MirroredPool small(context, geometry_of(2), 3);
}

}  // namespace
}  // namespace leapquant::cuda_test
