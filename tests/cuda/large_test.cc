// SPDX-License-Identifier: Apache-2.0
//
// Pools and batches at the far end: offsets beyond 2^32 bytes, 65,536 programs due. What they must give is what a small
// pool gives for the same programs; slots are copied between the two on the device.
#include <algorithm>
#include <numeric>
#include <random>

#include "draft_calls.h"
#include "fixture.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

class LargeTest : public DeviceTest {};

struct Bytes {
  char* data;
  size_t count;
};

// A slot's share of each tensor that owns bytes. In both layouts slots are equally long; the padded one begins behind a
// gap.
std::vector<Bytes> bytes_of_slot(const Pool& pool, int64_t slot) {
  const lq_pool_tensors tensors = pool.tensors();
  const int64_t slots = tensors.hcnt.shape[0];
  const auto stride = static_cast<size_t>(tensors.codes.strides[0]);
  std::vector<Bytes> result = {{static_cast<char*>(tensors.codes.data) + static_cast<size_t>(slot) * stride, stride}};
  for (const auto member : kPoolOwners) {
    if (member == &lq_pool_tensors::raw) continue;
    const lq_tensor& tensor = tensors.*member;
    const size_t bytes = tensor_bytes(tensor) / static_cast<size_t>(slots);
    result.push_back({static_cast<char*>(tensor.data) + static_cast<size_t>(slot) * bytes, bytes});
  }
  return result;
}

void copy_slot(const Pool& from, int64_t slot, const Pool& to, int64_t to_slot) {
  const std::vector<Bytes> source = bytes_of_slot(from, slot);
  const std::vector<Bytes> target = bytes_of_slot(to, to_slot);
  for (size_t i = 0; i < source.size(); ++i) {
    check_cuda(cudaMemcpyAsync(target[i].data, source[i].data, source[i].count, cudaMemcpyDeviceToDevice, nullptr));
  }
}

std::vector<unsigned char> download_slot(const Pool& pool, int64_t slot) {
  std::vector<unsigned char> result;
  for (const Bytes& bytes : bytes_of_slot(pool, slot)) {
    const size_t at = result.size();
    result.resize(at + bytes.count);
    check_cuda(cudaMemcpy(result.data() + at, bytes.data, bytes.count, cudaMemcpyDeviceToHost));
  }
  return result;
}

void flush(const Pool& pool, const std::vector<int32_t>& slots, const judge::FlushInputs& inputs) {
  const InplaceArguments arguments(kDevice, slots, inputs);
  check_cuda(cudaDeviceSynchronize());
  pool.flush_inplace(arguments.indices, arguments.q0);
  check_cuda(cudaDeviceSynchronize());
}

// The most slots of `wanted` and `least` that fit in the device's free memory.
int64_t slots_that_fit(const Geometry& geometry, lq_layout layout, int64_t wanted, int64_t least) {
  size_t available = 0;
  size_t total = 0;
  check_cuda(cudaMemGetInfo(&available, &total));
  const lq_geometry shape = judge::public_geometry(geometry);
  int64_t most = 0;
  check(lq_pool_slots_in(&shape, layout, static_cast<int64_t>(available / 10 * 9), &most));
  return most >= wanted ? wanted : least;
}

// One token for three slots.
void step(const Pool& pool, const std::vector<int32_t>& slots, const Geometry& geometry) {
  const StepArguments arguments(kDevice, slots, step_inputs_of(judge::StepFamily::kRandom, geometry, 3));
  check(arguments.enqueue(pool));
  check_cuda(cudaDeviceSynchronize());
}

// Two tokens ahead for one slot, and its state imported into another.
void speculate(const Pool& pool, int32_t slot, int32_t other, const judge::FlushInputs& inputs) {
  DraftArguments arguments(kDevice, {slot}, 2, step_inputs_of(judge::StepFamily::kRandom, inputs.geometry, 2),
                           inputs.q0);
  arguments.accepted_values = {2};
  arguments.upload();
  check(arguments.enqueue_draft(pool));
  check(arguments.enqueue_commit(pool));
  const int64_t heads = inputs.geometry.num_heads;
  const DeviceArray states(static_cast<size_t>(heads * 128 * 128) * sizeof(float));
  const lq_tensor state = on_device(tensor(states.data(), LQ_FLOAT32, {1, heads, 128, 128}));
  const InplaceArguments from(kDevice, {slot}, inputs);
  const InplaceArguments to(kDevice, {other}, inputs);
  pool.export_state(from.indices, state);
  pool.import_state(to.indices, state, LQ_STATE_VK, nullptr, to.q0);
  check_cuda(cudaDeviceSynchronize());
}

// A flush of full windows, a step behind it, a flush of what that has left, a draft, an export and an import.
void live(const Pool& pool, const std::vector<int32_t>& slots, const judge::FlushInputs& inputs) {
  flush(pool, slots, inputs);
  step(pool, slots, inputs.geometry);
  const InplaceArguments one(kDevice, {slots[0]}, inputs);
  pool.flush_now(one.indices, one.q0);
  speculate(pool, slots[0], slots[2], inputs);
}

void expect_the_last_slots_to_work(lq_layout layout, int64_t slots) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(32), 3);
  const MirroredPool small = filled_pool(context, inputs, 4, layout);
  const Pool large(context, judge::public_geometry(inputs.geometry), slots, layout);
  const auto untouched = download_slot(large, slots - 3);
  const std::vector<int32_t> order = {static_cast<int32_t>(slots - 1), 1, static_cast<int32_t>(slots - 2)};
  for (int64_t i = 0; i < 3; ++i) copy_slot(small.pool(), i + 1, large, order[static_cast<size_t>(i)]);
  live(large, order, inputs);
  live(small.pool(), {1, 2, 3}, inputs);
  const auto expect_slot = [&](int64_t slot, int64_t model) {
    EXPECT_TRUE(download_slot(large, slot) == download_slot(small.pool(), model)) << "slot " << slot;
  };
  for (int64_t i = 0; i < 3; ++i) expect_slot(order[static_cast<size_t>(i)], i + 1);
  EXPECT_TRUE(download_slot(large, slots - 3) == untouched);

  const InplaceArguments last(kDevice, {order[0]}, inputs);
  const InplaceArguments spare(kDevice, {static_cast<int32_t>(slots - 3)}, inputs);
  large.copy_slots(last.indices, spare.indices);
  check_cuda(cudaDeviceSynchronize());
  expect_slot(slots - 3, 1);
  large.reset_slots(spare.indices);
  check_cuda(cudaDeviceSynchronize());
  EXPECT_TRUE(download_slot(large, slots - 3) == untouched);
}

// 33,000 slots: raw, keys, updates and gates all reach beyond 2^32 bytes (34 GB); 7,000: the raw buffer does.
TEST_F(LargeTest, OffsetsBeyond32BitsInTheCompactLayout) {
  expect_the_last_slots_to_work(LQ_LAYOUT_COMPACT, slots_that_fit(geometry_of(32), LQ_LAYOUT_COMPACT, 33000, 7000));
}

TEST_F(LargeTest, OffsetsBeyond32BitsInThePaddedLayout) { expect_the_last_slots_to_work(LQ_LAYOUT_PADDED, 2100); }

// 2,048 sequences of 32 heads, all due: copies of eight, in any order.
TEST_F(LargeTest, TheLargestBatch) {
  const Context context("cuda");
  const int64_t batch = repetitions(2048);
  constexpr int64_t kDistinct = 8;
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(32), kDistinct);
  const MirroredPool small = filled_pool(context, inputs, kDistinct + 1);
  const Pool large(context, judge::public_geometry(inputs.geometry), batch + 1);
  for (int64_t slot = 1; slot <= batch; ++slot) copy_slot(small.pool(), 1 + slot % kDistinct, large, slot);
  std::vector<int32_t> order(static_cast<size_t>(batch));
  std::iota(order.begin(), order.end(), 1);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  flush(large, order, inputs);
  std::vector<std::vector<unsigned char>> expected;
  for (int64_t slot = 1; slot <= kDistinct; ++slot) {
    flush(small.pool(), {static_cast<int32_t>(slot)}, inputs);  // each alone
    expected.push_back(download_slot(small.pool(), slot));
  }
  for (int64_t slot = 1; slot <= batch; ++slot) {
    ASSERT_TRUE(download_slot(large, slot) == expected[static_cast<size_t>(slot % kDistinct)]) << "slot " << slot;
  }
}

}  // namespace
}  // namespace leapquant::cuda_test
