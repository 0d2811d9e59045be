// SPDX-License-Identifier: Apache-2.0
//
// Graphs: the call can be captured, even as the first one of a process, and replayed with other contents.
#include <algorithm>
#include <cstdlib>

#include "draft_calls.h"
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

// Step and flush as one call, replayed with other slots and counters: what an eager call makes of the same pool.
void capture_the_first_step(const Geometry& geometry) {
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry, 5);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, inputs.geometry, 1);
  const MirroredPool pool(context, inputs.geometry, 6);
  const MirroredPool eager(context, inputs.geometry, 6);
  for (const MirroredPool* const p : {&pool, &eager}) {
    for (int64_t item = 0; item < 5; ++item) fill_slot(*p, item + 1, inputs, item);
    p->counter(2, 1) = 15;  // due behind the step
    p->upload();
  }
  const InplaceArguments flush(kDevice, {1}, basis);
  StepArguments captured(kDevice, {2, 0, 5, 9, 1}, inputs);
  StepArguments called(kDevice, {2, 0, 5, 9, 1}, inputs);
  const Stream stream;
  const Graph graph(stream, [&](cudaStream_t on) { check(captured.enqueue_flush(pool.pool(), flush.q0, on)); });
  const auto expect_the_same = [&] {
    graph.launch(stream.get());
    stream.wait();
    check(called.enqueue_flush(eager.pool(), flush.q0));
    for (const MirroredPool* const p : {&pool, &eager}) p->download();
    captured.download();
    called.download();
    EXPECT_EQ(bytes_of(pool), bytes_of(eager));
    for (size_t i = 0; i < called.output.size(); ++i) ASSERT_EQ(captured.output[i].bits, called.output[i].bits) << i;
    EXPECT_EQ(pool.read_errors().first_position[LQ_ERROR_INDEX], 3);
    EXPECT_EQ(eager.read_errors().first_position[LQ_ERROR_INDEX], 3);
  };
  expect_the_same();
  EXPECT_EQ(pool.counter(2, 1), 16);
  for (StepArguments* const arguments : {&captured, &called}) arguments->set_indices({0, 4, 2, 6, 3});
  for (const MirroredPool* const p : {&pool, &eager}) {
    p->counter(3, 2) = 15;
    p->upload(&lq_pool_tensors::hcnt);
  }
  expect_the_same();
  EXPECT_EQ(pool.counter(2, 1), 1);
  EXPECT_EQ(pool.counter(3, 2), 16);
}

TEST_F(GraphDeathTest, TheFirstStepOfAProcessCanBeCaptured) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const Geometry& geometry : {geometry_of(4), gdn_geometry(4, 4, 2)}) {
    EXPECT_EXIT(
        {
          capture_the_first_step(geometry);
          std::exit(HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
  }
}

class GraphTest : public DeviceTest {};

// The life of a slot in one graph: what the same calls make eagerly.
TEST_F(GraphTest, SlotsCanBeResetCopiedAndFlushed) {
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 5);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, inputs.geometry, 1);
  const MirroredPool pool(context, inputs.geometry, 6);
  const MirroredPool eager(context, inputs.geometry, 6);
  for (const MirroredPool* const p : {&pool, &eager}) {
    for (int64_t item = 0; item < 5; ++item) fill_slot(*p, item + 1, inputs, item);
    p->upload();
  }
  const InplaceArguments now(kDevice, {1, 4}, basis);
  const InplaceArguments fresh(kDevice, {3, 0}, basis);
  const InplaceArguments forks(kDevice, {2, 5}, basis);
  const auto live = [&](const Pool& target, cudaStream_t on) {
    target.flush_now(now.indices, now.q0, on);
    target.copy_slots(now.indices, forks.indices, on);
    target.reset_slots(fresh.indices, on);
  };
  const Stream stream;
  const Graph graph(stream, [&](cudaStream_t on) { live(pool.pool(), on); });
  graph.launch(stream.get());
  stream.wait();
  live(eager.pool(), nullptr);
  for (const MirroredPool* const p : {&pool, &eager}) p->download();
  EXPECT_EQ(bytes_of(pool), bytes_of(eager));
  EXPECT_EQ(pool.counter(2, 1), 0);
}

// Dense states in and out, and tokens drafted and committed across the window's end: what the same calls make eagerly,
// also when the graph is replayed with other contents.
void capture_states_and_drafts(const Geometry& geometry) {
  constexpr int32_t kTokens = 4;
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry, 5);
  const judge::StepInputs tokens = step_inputs_of(judge::StepFamily::kStructured, geometry, 2 * kTokens);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, geometry, 1);
  const MirroredPool pool(context, geometry, 6);
  const MirroredPool eager(context, geometry, 6);
  const int64_t heads = geometry.num_heads;
  const DeviceArray states(static_cast<size_t>(2 * heads * 128 * 128) * sizeof(float));
  const lq_tensor state = on_device(tensor(states.data(), LQ_FLOAT32, {2, heads, 128, 128}));
  const auto fill = [&](const MirroredPool& target, int32_t count) {
    for (int64_t item = 0; item < 5; ++item) fill_slot(target, item + 1, inputs, item);
    for (int64_t head = 0; head < heads; ++head) target.counter(2, head) = count;
    target.upload();
  };
  const InplaceArguments from(kDevice, {1, 4}, basis);
  const InplaceArguments to(kDevice, {5, 2}, basis);
  DraftArguments captured(kDevice, {2, 3}, kTokens, tokens, basis.q0);
  DraftArguments called(kDevice, {2, 3}, kTokens, tokens, basis.q0);
  for (DraftArguments* const arguments : {&captured, &called}) {
    arguments->accepted_values = {4, 1};
    arguments->upload();
  }
  const auto live = [&](const MirroredPool& target, const DraftArguments& arguments, cudaStream_t on) {
    check(arguments.enqueue_draft(target.pool(), on));
    check(arguments.enqueue_commit(target.pool(), on));
    target.pool().export_state(from.indices, state, LQ_STATE_KV, on);
    target.pool().import_state(to.indices, state, LQ_STATE_KV, nullptr, to.q0, on);
  };
  const Stream stream;
  fill(pool, 15);
  const Graph graph(stream, [&](cudaStream_t on) { live(pool, captured, on); });
  for (const int32_t count : {15, 3, 12}) {
    SCOPED_TRACE(std::to_string(count) + " entries");
    for (const MirroredPool* const p : {&pool, &eager}) fill(*p, count);
    graph.launch(stream.get());
    stream.wait();
    live(eager, called, nullptr);
    for (const MirroredPool* const p : {&pool, &eager}) p->download();
    for (DraftArguments* const arguments : {&captured, &called}) arguments->download();
    EXPECT_EQ(bytes_of(pool), bytes_of(eager));
    EXPECT_EQ(captured.scratch_bytes, called.scratch_bytes);
    EXPECT_TRUE(std::equal(called.output.begin(), called.output.end(), captured.output.begin(),
                           [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; }));
    EXPECT_EQ(pool.counter(5, 0), 0);
  }
}

TEST_F(GraphTest, StatesAndDraftsCanBeCaptured) {
  capture_states_and_drafts(geometry_of(3));
  capture_states_and_drafts(gdn_geometry(4, 4, 2));
}

TEST_F(GraphDeathTest, TheFirstDraftOfAProcessCanBeCaptured) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        capture_states_and_drafts(geometry_of(2));
        std::exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

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
