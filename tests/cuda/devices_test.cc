// SPDX-License-Identifier: Apache-2.0
//
// Several devices: work goes to the pool's, and the caller's current one stays.
#include "fixture.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

constexpr lq_device kSecond{LQ_DEVICE_CUDA, 1};

int current_device() {
  int device = -1;
  check_cuda(cudaGetDevice(&device));
  return device;
}

class TwoDevicesTest : public testing::Test {
 protected:
  void SetUp() override { need_devices(device_count(), 2); }
  void TearDown() override { (void)cudaSetDevice(0); }
};

TEST_F(TwoDevicesTest, WorkGoesToThePoolsDevice) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(12), 5);
  const auto expected = bytes_of(flush_or_die(Context("cuda"), inputs));
  for (const int current : {0, 1}) {
    check_cuda(cudaSetDevice(current));
    const Context context("cuda", 0, "", 1 - current);
    EXPECT_EQ(context.info().device.index, 1 - current);
    const MirroredPool pool = filled_pool(context, inputs, 6);
    EXPECT_EQ(current_device(), current);
    const std::vector<int32_t> slots = {1, 2, 3, 4, 5};
    pool.flush(slots, inputs);
    EXPECT_EQ(current_device(), current);
    EXPECT_EQ(bytes_of(judge::read_slots(pool.host(), inputs.geometry, slots)), expected);
    EXPECT_EQ(bytes_of(flush_or_die(context, inputs)), expected);
    EXPECT_EQ(pool.read_errors().flags, 0u);
    EXPECT_NO_THROW(pool.check_indices(slots));
    EXPECT_EQ(current_device(), current);
  }
}

void expect_both_named(lq_status status) {
  EXPECT_EQ(status, LQ_INVALID_ARGUMENT);
  const std::string text = lq_last_error();
  for (const char* word : {"'q0'", "cuda:0", "cuda:1"}) EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST_F(TwoDevicesTest, ATensorOfTheOtherDeviceIsRefused) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  const Context context("cuda", 0, "", 1);
  const MirroredPool pool = filled_pool(context, inputs, 3);
  const auto before = bytes_of(pool);
  const InplaceArguments here(kSecond, {1, 2}, inputs);
  const InplaceArguments elsewhere(kDevice, {1, 2}, inputs);
  expect_both_named(lq_flush_inplace(pool.pool().get(), &here.indices, &elsewhere.q0, nullptr));
  pool.download();
  EXPECT_EQ(bytes_of(pool), before);
  FlushCall call(context, inputs);
  call.q0 = elsewhere.q0;
  expect_both_named(call.run(context));
}

}  // namespace
}  // namespace leapquant::cuda_test
