// SPDX-License-Identifier: Apache-2.0
//
// Graphs: the call can be captured, even as the first one of a process, and replayed with other contents.
#include <algorithm>
#include <cstdlib>

#include "fixture.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

class GraphDeathTest : public DeviceTest {};

judge::CheckpointTensors slots_of(const MirroredPool& pool, const Geometry& geometry) {
  pool.download();
  return judge::read_slots(pool.host(), geometry, std::vector<int32_t>{1, 2, 3, 4, 5});
}

void capture_the_first_call() {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 5);
  const MirroredPool pool = filled_pool(context, inputs, 6);
  const judge::CheckpointTensors old = slots_of(pool, inputs.geometry);
  InplaceArguments arguments(kDevice, {1, 2, 3, 0, 0}, inputs);
  const Stream stream;
  const Graph graph(stream, [&](cudaStream_t on) { pool.pool().flush_inplace(arguments.indices, arguments.q0, on); });
  EXPECT_EQ(bytes_of(slots_of(pool, inputs.geometry)), bytes_of(old));  // nothing has run

  graph.launch(stream.get());
  judge::CheckpointTensors expected = old;
  const judge::CheckpointTensors flushed = flush_or_die(context, inputs);
  for (int64_t program = 0; program < 12; ++program) copy_program(flushed, program, expected);
  EXPECT_EQ(bytes_of(slots_of(pool, inputs.geometry)), bytes_of(expected));

  // Other indices, counters and start basis in the same memory.
  judge::FlushInputs other = inputs;
  other.q0 = std::vector<float>(inputs.q0.rbegin(), inputs.q0.rend());
  const judge::CheckpointTensors flushed_otherwise = flush_or_die(context, other);
  arguments.set_indices({0, 5, 4, -1, 9});
  arguments.set_start_basis(other.q0);
  pool.counter(4, 1) = 15;
  pool.upload(&lq_pool_tensors::hcnt);
  graph.launch(stream.get());
  for (const int64_t program : {12, 14, 15, 16, 17, 18, 19}) copy_program(flushed_otherwise, program, expected);
  EXPECT_EQ(bytes_of(slots_of(pool, inputs.geometry)), bytes_of(expected));
  EXPECT_EQ(pool.pool().read_errors(stream.get()).first_position[LQ_ERROR_INDEX], 4);
}

// In a process of its own, so that no earlier call has loaded, allocated or warmed up anything.
TEST_F(GraphDeathTest, TheFirstCallOfAProcessCanBeCaptured) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        capture_the_first_call();
        std::exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

class GraphTest : public DeviceTest {};

TEST_F(GraphTest, TheFunctionalFormCanBeCaptured) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(12, 8), 4);
  FlushCall call(context, inputs);
  const Stream stream;
  const Graph graph(stream, [&](cudaStream_t on) { check(call.enqueue(context, on)); });
  graph.launch(stream.get());
  stream.wait();
  call.download();
  EXPECT_EQ(bytes_of(call.output), bytes_of(flush_or_die(context, inputs)));
}

}  // namespace
}  // namespace leapquant::cuda_test
