// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA backend refuses, by name and before anything is touched, and that a refusal leaves nothing behind.
#include <string>

#include "draft_calls.h"
#include "fixture.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

lq_backend_info cuda_backend() {
  for (const lq_backend_info& info : backends()) {
    if (info.name == std::string("cuda")) return info;
  }
  ADD_FAILURE() << "no backend 'cuda' in this build";
  return {};
}

template <class Call>
void expect_error(const Call& call, lq_status status, const std::string& word) {
  try {
    call();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

// These two need no device.
TEST(CudaBackend, IsListedButNeverTheDefault) {
  EXPECT_EQ(cuda_backend().device, LQ_DEVICE_CUDA);
  EXPECT_EQ(Context().info().device.type, LQ_DEVICE_CPU);
}

TEST(CudaBackend, SaysSoWithoutADevice) {
  if (device_count() > 0) {
    EXPECT_NE(std::string(cuda_backend().targets), "");
    EXPECT_NO_THROW(Context("cuda"));
  } else {
    EXPECT_EQ(std::string(cuda_backend().targets), "");
    expect_error([] { Context("cuda"); }, LQ_CUDA, "device");
  }
}

class RefusalTest : public DeviceTest {
 protected:
  // Nothing surfaces in the caller's next call.
  void TearDown() override {
    if (IsSkipped()) return;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
};

TEST_F(RefusalTest, HostTensors) {
  const Context context("cuda");
  FlushCall on_host(Context("cpu", 1), inputs_of(judge::Family::kRandom, geometry_of(1), 1));
  EXPECT_EQ(on_host.enqueue(context), LQ_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lq_last_error()).find("cuda:0"), std::string::npos) << lq_last_error();
}

TEST_F(RefusalTest, MisalignedPools) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const Pool shape(context, judge::public_geometry(inputs.geometry), 2);
  lq_pool_tensors memory = shape.tensors();
  const DeviceArray shifted(tensor_bytes(memory.kbuf) + 2);
  memory.kbuf.data = shifted.data() + 2;
  const Pool pool(context, {judge::public_geometry(inputs.geometry), LQ_LAYOUT_COMPACT, 2, &memory, LQ_POOL_DEFAULT});
  const InplaceArguments arguments(kDevice, {1}, inputs);
  const judge::StepInputs token_inputs = step_inputs_of(judge::StepFamily::kRandom, inputs.geometry, 1);
  const StepArguments token(kDevice, {1}, token_inputs);
  const DraftArguments drafted(kDevice, {1}, 1, token_inputs, inputs.q0);
  const DeviceArray states(static_cast<size_t>(2 * 128 * 128) * sizeof(float));
  const lq_tensor state = on_device(tensor(states.data(), LQ_FLOAT32, {1, 2, 128, 128}));
  const lq_tensor& indices = arguments.indices;
  const auto expect_refusal = [](const auto& call) { expect_error(call, LQ_UNSUPPORTED, "'kbuf'"); };
  expect_refusal([&] { pool.flush_inplace(indices, arguments.q0); });
  expect_refusal([&] { pool.flush_now(indices, arguments.q0); });
  expect_refusal([&] { pool.step_inplace(indices, token.token, token.o, token.params); });
  expect_refusal([&] { pool.import_state(indices, state, LQ_STATE_VK, nullptr, arguments.q0); });
  expect_refusal([&] { check(drafted.enqueue_draft(pool)); });
  expect_refusal([&] { check(drafted.enqueue_commit(pool)); });
  expect_refusal([&] { pool.reset_slots(indices); });
  expect_refusal([&] { pool.copy_slots(indices, indices); });
}

TEST_F(RefusalTest, DevicesThatAreNotThere) {
  EXPECT_THROW(Context("cuda", 0, "", 4096), Error);
  EXPECT_THROW(Context("cuda", 0, "", -1), Error);
  EXPECT_THROW(Context("cuda", 0, "sm_1"), Error);
}

TEST_F(RefusalTest, APoolLargerThanTheDevice) {
  const Context context("cuda");
  const lq_geometry geometry = judge::public_geometry(geometry_of(32));
  size_t before = 0;
  size_t total = 0;
  check_cuda(cudaMemGetInfo(&before, &total));
  int64_t slots = 0;
  check(lq_pool_slots_in(&geometry, LQ_LAYOUT_COMPACT, 2 * static_cast<int64_t>(total), &slots));
  expect_error([&] { Pool(context, geometry, slots); }, LQ_OUT_OF_MEMORY, "memory");
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  size_t after = 0;
  check_cuda(cudaMemGetInfo(&after, &total));
  EXPECT_GE(after, before);  // the driver may have given some of its own back
  EXPECT_NO_THROW(Pool(context, geometry, 3));
}

// A launch of no blocks would be an error that a later call reports.
TEST_F(RefusalTest, NoIndicesLeaveNoError) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  const MirroredPool pool = filled_pool(context, inputs, 3);
  const auto before = bytes_of(pool);
  pool.flush({}, inputs);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  EXPECT_EQ(bytes_of(pool), before);
}

}  // namespace
}  // namespace leapquant::cuda_test
