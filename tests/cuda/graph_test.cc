// SPDX-License-Identifier: Apache-2.0
//
// Streams and graphs. Each test runs in a process of its own under ctest, so the first call of a process is captured.
#include <algorithm>

#include "device.h"

namespace leapquant::cuda_test {
namespace {

class GraphTest : public DeviceTest {};

TEST_F(GraphTest, TheFirstCallCanBeCaptured) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 5);
  const auto pool = filled_pool(context, inputs, 6);
  InplaceArguments arguments({1, 2, 3, 0, 0}, inputs);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  pool->pool().flush_inplace(arguments.indices, arguments.start_basis, stream);
  check_cuda(cudaStreamEndCapture(stream, &graph));
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  const auto before = pool->bytes();
  EXPECT_EQ(pool->bytes(), before);  // nothing has run

  const judge::CheckpointTensors flushed = flush_or_die(context, inputs);
  const std::vector<int32_t> slots = {1, 2, 3, 4, 5};
  const judge::CheckpointTensors old = judge::read_slots(pool->host(), inputs.geometry, slots);
  check_cuda(cudaGraphLaunch(executable, stream));
  check_cuda(cudaStreamSynchronize(stream));
  pool->download();
  judge::CheckpointTensors result = judge::read_slots(pool->host(), inputs.geometry, slots);
  EXPECT_TRUE(std::equal(flushed.codes.begin(), flushed.codes.begin() + 12 * 16384, result.codes.begin()));
  EXPECT_TRUE(std::equal(old.codes.begin() + 12 * 16384, old.codes.end(), result.codes.begin() + 12 * 16384));

  // Other indices in the same memory.
  const std::vector<int32_t> others = {0, 5, 4, -1, 9};
  arguments.index_memory.upload(others.data());
  check_cuda(cudaGraphLaunch(executable, stream));
  check_cuda(cudaStreamSynchronize(stream));
  pool->download();
  EXPECT_EQ(bytes_of(judge::read_slots(pool->host(), inputs.geometry, slots)), bytes_of(flushed));
  EXPECT_EQ(pool->pool().read_errors(stream).first_position[LQ_ERROR_INDEX], 4);
  check_cuda(cudaGraphExecDestroy(executable));
  check_cuda(cudaGraphDestroy(graph));
  check_cuda(cudaStreamDestroy(stream));
}

TEST_F(GraphTest, WorkWaitsForItsStream) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 2);
  const auto expected = bytes_of(flush_or_die(context, inputs));
  const auto pool = filled_pool(context, inputs, 3);
  // The counters arrive on the stream behind a long copy.
  const DeviceArray counters(std::vector<int32_t>(12, 16));
  const DeviceArray long_copy(size_t{1} << 30);
  judge::set_counters(pool->host(), 1, 0);
  judge::set_counters(pool->host(), 2, 0);
  pool->upload();
  const InplaceArguments arguments({2, 1}, inputs);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int i = 0; i < 20; ++i) {
    check_cuda(cudaMemsetAsync(long_copy.data(), i, long_copy.bytes(), stream));
  }
  check_cuda(cudaMemcpyAsync(pool->pool().tensors().hcnt.data, counters.data(), 48, cudaMemcpyDeviceToDevice, stream));
  pool->pool().flush_inplace(arguments.indices, arguments.start_basis, stream);
  check_cuda(cudaStreamSynchronize(stream));
  pool->download();
  const std::vector<int32_t> slots = {1, 2};
  EXPECT_EQ(bytes_of(judge::read_slots(pool->host(), inputs.geometry, slots)), expected);
  check_cuda(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace leapquant::cuda_test
