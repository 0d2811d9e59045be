// SPDX-License-Identifier: Apache-2.0
//
// What the CUDA backend refuses, by name and before anything is touched.
#include <string>

#include "device.h"

namespace leapquant::cuda_test {
namespace {

lq_backend_info cuda_backend() {
  for (const lq_backend_info& info : backends()) {
    if (info.name == std::string("cuda")) return info;
  }
  ADD_FAILURE() << "no backend 'cuda' in this build";
  return {};
}

// These two need no device.
TEST(CudaBackend, IsListedButNeverTheDefault) {
  EXPECT_EQ(cuda_backend().device, LQ_DEVICE_CUDA);
  EXPECT_EQ(Context().info().device.type, LQ_DEVICE_CPU);
}

TEST(CudaBackend, SaysSoWithoutADevice) {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) {
    EXPECT_NE(std::string(cuda_backend().targets), "");
    EXPECT_NO_THROW(Context("cuda"));
    return;
  }
  (void)cudaGetLastError();
  EXPECT_EQ(std::string(cuda_backend().targets), "");
  try {
    const Context context("cuda");
    ADD_FAILURE() << "a context without a device";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), LQ_CUDA) << error.what();
    EXPECT_NE(std::string(error.what()).find("device"), std::string::npos) << error.what();
  }
}

class RefusalTest : public DeviceTest {};

TEST_F(RefusalTest, HostTensors) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(1), 1);
  const Result<judge::CheckpointTensors> result = judge::flush(context, inputs);
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.status().message().find("cuda:0"), std::string::npos) << result.status().message();
}

TEST_F(RefusalTest, CheckFinite) {
  const Context context("cuda");
  const DeviceFlush flush(inputs_of(judge::Family::kRandom, geometry_of(1), 1));
  EXPECT_EQ(flush.run(context, LQ_FLUSH_CHECK_FINITE), LQ_UNSUPPORTED);
}

TEST_F(RefusalTest, MisalignedTensors) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  const lq_geometry geometry = judge::public_geometry(inputs.geometry);
  lq_pool_sizes sizes{};
  check(lq_pool_size(&geometry, LQ_LAYOUT_COMPACT, 2, &sizes));
  const MirroredPool shape(context, inputs.geometry, 2);
  lq_pool_tensors memory = shape.pool().tensors();
  const DeviceArray shifted(tensor_bytes(memory.kbuf) + 2);
  memory.kbuf.data = static_cast<char*>(shifted.data()) + 2;
  const Pool pool(context, {geometry, LQ_LAYOUT_COMPACT, 2, &memory, LQ_POOL_DEFAULT});
  const InplaceArguments arguments({1}, inputs);
  try {
    pool.flush_inplace(arguments.indices, arguments.start_basis);
    ADD_FAILURE() << "a misaligned kbuf was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), LQ_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("'kbuf'"), std::string::npos) << error.what();
  }
}

TEST_F(RefusalTest, DevicesThatAreNotThere) {
  EXPECT_THROW(Context("cuda", 0, "", 4096), Error);
  EXPECT_THROW(Context("cuda", 0, "sm_1"), Error);
}

}  // namespace
}  // namespace leapquant::cuda_test
