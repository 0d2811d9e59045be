// SPDX-License-Identifier: Apache-2.0
//
// A call's work waits for its stream, and the call itself for nothing.
#include <chrono>
#include <numeric>
#include <thread>

#include "draft_calls.h"
#include "early_copy.h"
#include "fixture.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

class StreamTest : public DeviceTest {};

void delay(const Stream& stream) {
  check_cuda(cudaLaunchHostFunc(
      stream.get(), [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr));
}

// The call has waited for nothing. (Under a tool, the delay may be over before it.)
void expect_pending(const Stream& stream) {
  const cudaError_t state = cudaStreamQuery(stream.get());
  (void)cudaGetLastError();
  EXPECT_TRUE(state == cudaErrorNotReady || is_set("LQ_TEST_SHORT")) << cudaGetErrorString(state);
}

// The pool's contents arrive on a stream that starts late; a flush on any other stream would find nothing due.
TEST_F(StreamTest, WorkWaitsForItsStream) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(32), 6);
  const MirroredPool serial = filled_pool(context, inputs, 7);
  const Snapshot contents(serial.pool());
  const std::vector<int32_t> order = {3, 6, 0, 1, 2, 5, 4};
  serial.flush(order, inputs);

  const MirroredPool pool(context, inputs.geometry, 7);
  const InplaceArguments arguments(kDevice, order, inputs);
  const Stream stream;
  delay(stream);
  contents.restore(pool.pool(), stream.get());
  pool.pool().flush_inplace(arguments.indices, arguments.q0, stream.get());
  expect_pending(stream);
  stream.wait();
  pool.download();
  EXPECT_EQ(bytes_of(pool), bytes_of(serial));
}

TEST_F(StreamTest, TheFunctionalFormWaitsForItsStream) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(8), 3);
  FlushCall call(context, inputs);
  const DeviceArray weights(tensor_bytes(call.window.w));
  check_cuda(cudaMemcpy(weights.data(), call.window.w.data, weights.bytes(), cudaMemcpyDeviceToDevice));
  check_cuda(cudaMemset(call.window.w.data, 0, weights.bytes()));
  check_cuda(cudaDeviceSynchronize());
  const Stream stream;
  delay(stream);
  check_cuda(
      cudaMemcpyAsync(call.window.w.data, weights.data(), weights.bytes(), cudaMemcpyDeviceToDevice, stream.get()));
  check(call.enqueue(context, stream.get()));
  expect_pending(stream);
  stream.wait();
  call.download();
  EXPECT_EQ(bytes_of(call.output), bytes_of(flush_or_die(context, inputs)));
}

TEST_F(StreamTest, AStepWaitsForItsStream) {
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(8), 3);
  StepCall call(context, inputs);
  const DeviceArray keys(tensor_bytes(call.token.kx));
  check_cuda(cudaMemcpy(keys.data(), call.token.kx.data, keys.bytes(), cudaMemcpyDeviceToDevice));
  check_cuda(cudaMemset(call.token.kx.data, 0, keys.bytes()));
  check_cuda(cudaDeviceSynchronize());
  const Stream stream;
  delay(stream);
  check_cuda(cudaMemcpyAsync(call.token.kx.data, keys.data(), keys.bytes(), cudaMemcpyDeviceToDevice, stream.get()));
  check(call.enqueue(context, stream.get()));
  expect_pending(stream);
  stream.wait();
  call.download();
  EXPECT_EQ(bytes_of(call.output), bytes_of(step_or_die(context, inputs)));
}

// What `enqueue(stream)` does, at once or as a graph, is done.
template <class Enqueue>
void run(bool as_graph, const Enqueue& enqueue) {
  const Stream stream;
  if (as_graph) {
    const Graph graph(stream, enqueue);
    graph.launch(stream.get());
    stream.wait();
  } else {
    enqueue(stream.get());
    expect_pending(stream);
    stream.wait();
  }
}

// A kernel may let those behind it begin before it has written anything.
TEST_F(StreamTest, AFlushWaitsForAKernelThatItMayOvertake) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(32), 6);
  const std::vector<int32_t> order = {3, 6, 0, 1, 2, 5, 4};
  const InplaceArguments arguments(kDevice, order, inputs);
  const MirroredPool serial = filled_pool(context, inputs, 7);
  serial.flush(order, inputs);
  for (const bool as_graph : {false, true}) {
    const MirroredPool pool = filled_pool(context, inputs, 7);
    const lq_tensor counters = pool.pool().tensors().hcnt;
    const DeviceArray due(tensor_bytes(counters));
    check_cuda(cudaMemcpy(due.data(), counters.data, due.bytes(), cudaMemcpyDeviceToDevice));
    check_cuda(cudaMemset(counters.data, 0, due.bytes()));
    check_cuda(cudaDeviceSynchronize());
    run(as_graph, [&](cudaStream_t on) {
      check_cuda(enqueue_early_copy(counters.data, due.data(), due.bytes(), on));
      pool.pool().flush_inplace(arguments.indices, arguments.q0, on);
    });
    pool.download();
    EXPECT_EQ(bytes_of(pool), bytes_of(serial)) << as_graph;
  }
}

TEST_F(StreamTest, AStepWaitsForAKernelThatItMayOvertake) {
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(8), 3);
  for (const bool as_graph : {false, true}) {
    StepCall call(context, inputs);
    const DeviceArray keys(tensor_bytes(call.token.kx));
    check_cuda(cudaMemcpy(keys.data(), call.token.kx.data, keys.bytes(), cudaMemcpyDeviceToDevice));
    check_cuda(cudaMemset(call.token.kx.data, 0, keys.bytes()));
    check_cuda(cudaDeviceSynchronize());
    run(as_graph, [&](cudaStream_t on) {
      check_cuda(enqueue_early_copy(call.token.kx.data, keys.data(), keys.bytes(), on));
      check(call.enqueue(context, on));
    });
    call.download();
    EXPECT_EQ(bytes_of(call.output), bytes_of(step_or_die(context, inputs))) << as_graph;
  }
}

// A slot is drafted and exported when what it holds has arrived, and imported when the state has.
TEST_F(StreamTest, StatesAndDraftsWaitForTheirStream) {
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry_of(8), 3);
  const judge::StepInputs tokens = step_inputs_of(judge::StepFamily::kStructured, geometry_of(8), 4);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, inputs.geometry, 1);
  const DeviceArray states(static_cast<size_t>(2 * 8 * 128 * 128) * sizeof(float));
  const lq_tensor state = on_device(tensor(states.data(), LQ_FLOAT32, {2, 8, 128, 128}));
  const InplaceArguments from(kDevice, {1, 2}, basis);
  const InplaceArguments to(kDevice, {3, 4}, basis);
  const auto live = [&](const Pool& pool, const DraftArguments& arguments, cudaStream_t on) {
    check(arguments.enqueue_draft(pool, on));
    check(arguments.enqueue_commit(pool, on));
    pool.export_state(from.indices, state, LQ_STATE_VK, on);
    pool.import_state(to.indices, state, LQ_STATE_VK, nullptr, to.q0, on);
  };
  DraftArguments serial_arguments(kDevice, {2, 1}, 2, tokens, basis.q0);
  DraftArguments arguments(kDevice, {2, 1}, 2, tokens, basis.q0);
  for (DraftArguments* const each : {&serial_arguments, &arguments}) {
    each->accepted_values = {2, 1};
    each->upload();
  }
  const MirroredPool serial(context, inputs.geometry, 5);
  for (int64_t item = 0; item < 3; ++item) fill_slot(serial, item + 1, inputs, item);
  serial.upload();
  const Snapshot contents(serial.pool());
  live(serial.pool(), serial_arguments, nullptr);
  serial.download();
  check_cuda(cudaMemset(states.data(), 0, states.bytes()));
  check_cuda(cudaDeviceSynchronize());

  const MirroredPool pool(context, inputs.geometry, 5);
  const Stream stream;
  delay(stream);
  contents.restore(pool.pool(), stream.get());
  live(pool.pool(), arguments, stream.get());
  expect_pending(stream);
  stream.wait();
  pool.download();
  EXPECT_EQ(bytes_of(pool), bytes_of(serial));
}

// Steps and flushes in a row, the next of which may be launched while one still runs, eager and as a graph: what they
// make when each waits until the one before has ended.
TEST_F(StreamTest, CallsInARowSeeWhatTheOnesBeforeWrote) {
  constexpr int kCalls = 40;
  constexpr int32_t kBatch = 96;
  const Context context("cuda");
  for (const Geometry& geometry : {geometry_of(16), gdn_geometry(16, 4, 8)}) {
    const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry, kBatch);
    const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, inputs.geometry, 1);
    std::vector<int32_t> order(kBatch);
    std::iota(order.rbegin(), order.rend(), 1);
    const InplaceArguments flush(kDevice, order, basis);
    const Stream stream;
    enum class Calls { kOneByOne, kInARow, kInAGraph };
    std::vector<unsigned char> expected;
    for (const Calls calls : {Calls::kOneByOne, Calls::kInARow, Calls::kInAGraph}) {
      const MirroredPool pool(context, inputs.geometry, kBatch + 1);
      for (int32_t item = 0; item < kBatch; ++item) fill_slot(pool, item + 1, inputs, item);
      pool.upload();
      StepArguments step(kDevice, order, inputs);
      const auto call = [&](cudaStream_t on) {
        for (int i = 0; i < kCalls; ++i) {
          check(step.enqueue(pool.pool(), on));
          if (calls == Calls::kOneByOne) stream.wait();
          pool.pool().flush_inplace(flush.indices, flush.q0, on);
          if (calls == Calls::kOneByOne) stream.wait();
        }
      };
      if (calls == Calls::kInAGraph) {
        const Graph graph(stream, call);
        graph.launch(stream.get());
        stream.wait();
      } else {
        call(stream.get());
        stream.wait();
      }
      pool.download();
      step.download();
      std::vector<unsigned char> bytes = bytes_of(pool);
      const auto* const output = reinterpret_cast<const unsigned char*>(step.output.data());
      bytes.insert(bytes.end(), output, output + step.output.size() * sizeof(step.output[0]));
      if (calls == Calls::kOneByOne) expected = bytes;
      EXPECT_TRUE(bytes == expected) << static_cast<int>(calls);
    }
  }
}

// Reading the error word waits for the stream that it names.
TEST_F(StreamTest, ErrorsAreReadBehindTheStream) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  const MirroredPool pool = filled_pool(context, inputs, 3);
  const InplaceArguments arguments(kDevice, {1, 9, 2}, inputs);
  const Stream stream;
  delay(stream);
  pool.pool().flush_inplace(arguments.indices, arguments.q0, stream.get());
  EXPECT_EQ(pool.pool().read_errors(stream.get()).first_position[LQ_ERROR_INDEX], 1);
  EXPECT_EQ(pool.pool().read_errors(stream.get()).flags, 0u);
}

// What the search for non-finite values looks at may still be on its way.
TEST_F(StreamTest, TheSearchForNonFiniteValuesWaitsForItsStream) {
  const Context context("cuda");
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  FlushCall call(context, inputs);
  call.flags = LQ_FLUSH_CHECK_FINITE;
  const Stream stream;
  delay(stream);
  check_cuda(cudaMemsetAsync(call.window.pcum.data, 0xFF, tensor_bytes(call.window.pcum), stream.get()));  // NaN
  EXPECT_EQ(call.enqueue(context, stream.get()), LQ_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lq_last_error()).find("'pcum'"), std::string::npos) << lq_last_error();
}

}  // namespace
}  // namespace leapquant::cuda_test
