// SPDX-License-Identifier: Apache-2.0
//
// The life of a slot beside step and flush: both in one call, flushes of any fill, resets, copies.
#include <algorithm>
#include <climits>

#include "step_calls.h"

namespace leapquant::conformance {
namespace {

using SlotsTest = BackendTest;

// Index vectors of one call.
class Indices {
 public:
  Indices(lq_device device, std::vector<int32_t> values) : values_(std::move(values)), mirror_(device) {
    tensor_ = mirror_.add(values_);
  }
  Indices(const Indices&) = delete;
  Indices& operator=(const Indices&) = delete;

  const lq_tensor& get() const { return tensor_; }

 private:
  std::vector<int32_t> values_;
  Mirrors mirror_;
  lq_tensor tensor_{};
};

// A pool whose slots hold the items of a random batch, slot 0 included, at any fill.
MirroredPool noisy_pool(const Context& context, const judge::StepInputs& inputs, lq_layout layout = LQ_LAYOUT_COMPACT) {
  MirroredPool pool(context, inputs.geometry, inputs.batch, layout);
  for (int64_t slot = 0; slot < inputs.batch; ++slot) fill_slot(pool, slot, inputs, slot);
  pool.upload();
  return pool;
}

lq_status copy(const MirroredPool& pool, const std::vector<int32_t>& src, const std::vector<int32_t>& dst) {
  const Indices from(pool.device().raw.device, src);
  const Indices to(pool.device().raw.device, dst);
  pool.upload();
  const lq_status status = lq_pool_copy_slots(pool.pool().get(), &from.get(), &to.get(), nullptr);
  pool.download();
  return status;
}

TEST_P(SlotsTest, StepFlushIsTheTwoCalls) {
  const Context backend = context(2);
  const judge::StepInputs start = step_inputs_of(judge::StepFamily::kRandom, geometry_of(5), 4);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, start.geometry, 1);
  const MirroredPool one_call = noisy_pool(backend, start);
  const MirroredPool two_calls = noisy_pool(backend, start);
  for (const MirroredPool* const pool : {&one_call, &two_calls}) {
    pool->counter(2, 0) = 16;  // full and not flushed
    pool->counter(3, 1) = -3;
  }
  const std::vector<int32_t> order = {3, 0, 1, 9, 2};
  const InplaceArguments arguments(backend.info().device, order, basis);
  for (uint64_t t = 0; t < 18; ++t) {
    const judge::StepInputs tokens =
        step_inputs_of(judge::StepFamily::kStructured, start.geometry, 5, GateFunction::kBounded, 500 + t);
    StepArguments together(backend.info().device, order, tokens);
    StepArguments apart(backend.info().device, order, tokens);
    together.step_flush(one_call, arguments.q0);
    apart.step(two_calls);
    two_calls.flush(order, basis);
    ASSERT_EQ(bytes_of(one_call), bytes_of(two_calls)) << t;
    for (size_t i = 0; i < apart.output.size(); ++i) ASSERT_EQ(together.output[i].bits, apart.output[i].bits);
    const lq_pool_errors a = one_call.read_errors();
    const lq_pool_errors b = two_calls.read_errors();
    EXPECT_EQ(a.flags, b.flags);
    for (int kind = 0; kind < LQ_ERROR_KIND_COUNT; ++kind) EXPECT_EQ(a.first_position[kind], b.first_position[kind]);
  }
}

TEST_P(SlotsTest, AStepFlushThatIsRefusedStepsNothing) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(2), 2);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, inputs.geometry, 1);
  const MirroredPool pool = noisy_pool(backend, inputs);
  const InplaceArguments flush_arguments(backend.info().device, {1}, basis);
  const StepArguments step(backend.info().device, {1, 0}, inputs);
  const auto before = bytes_of(pool);
  const auto expect_refusal = [&](const lq_tensor& q0, const char* word) {
    EXPECT_EQ(lq_step_flush_inplace(pool.pool().get(), &step.indices, &step.token, &step.params, &q0, &step.o, nullptr),
              LQ_INVALID_ARGUMENT);
    EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << lq_last_error();
    pool.download();
    EXPECT_EQ(bytes_of(pool), before);
    for (const Bfloat16 value : step.output) ASSERT_EQ(value.bits, 0xFFFF);
  };
  lq_tensor wrong = flush_arguments.q0;
  wrong.shape[1] = 3;
  expect_refusal(wrong, "'q0'");
  wrong = flush_arguments.q0;
  wrong.data = static_cast<char*>(step.o.data) + 64;
  expect_refusal(wrong, "overlap");
}

// Counters 1 to 15 and a full window: the functional flush of what they hold, an empty window, counter 0. A window that
// a flush has emptied is not quantized again; 0 and counters out of range keep every byte.
TEST_P(SlotsTest, FlushNowTakesAnyFill) {
  const Context backend = context(2);
  const Geometry geometry = geometry_of(20);
  judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry, 2);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, geometry, 1);
  for (int64_t head = 0; head < 20; ++head) {
    const WindowProgram window = inputs.window.view().at(1, head);
    for (int64_t j = 0; j < 16; ++j) {
      const bool empty = head == 17 || j >= head;
      window.window_weight[j] = empty ? 0.0f : 1.0f;
      if (empty) std::fill_n(window.window_gate + j * 128, 128, Half{kHalfOne});
    }
    inputs.h[20 + head] = static_cast<int32_t>(std::min<int64_t>(head, 16));
  }
  inputs.h[20 + 18] = 17;
  inputs.h[20 + 19] = -1;
  const judge::FlushInputs flush{geometry, 2, inputs.checkpoint, inputs.window, basis.q0};
  const judge::CheckpointTensors flushed = flush_or_die(backend, flush);
  judge::StepInputs wanted = inputs;
  for (int64_t head = 1; head <= 17; ++head) {
    wanted.h[20 + head] = 0;
    if (head == 17) continue;  // emptied by a flush
    copy_program(flushed, 20 + head, wanted.checkpoint);
    const WindowProgram window = wanted.window.view().at(1, head);
    std::fill_n(window.window_weight, 16, 0.0f);
    std::fill_n(window.window_gate, 2048, Half{kHalfOne});
    std::fill_n(window.log_decay, 128, 0.0f);
  }
  const MirroredPool pool = noisy_pool(backend, inputs);
  const MirroredPool expected = noisy_pool(backend, wanted);
  const InplaceArguments arguments(backend.info().device, {0, 1, -5, 2}, basis);
  pool.pool().flush_now(arguments.indices, arguments.q0);
  pool.download();
  EXPECT_EQ(bytes_of(pool), bytes_of(expected));
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
  EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 3);
  pool.pool().flush_now(arguments.indices, arguments.q0);
  pool.download();
  EXPECT_EQ(bytes_of(pool), bytes_of(expected));  // nothing is left to flush
}

TEST_P(SlotsTest, AResetSlotIsNew) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 5);
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool pool = noisy_pool(backend, inputs, layout);
    const MirroredPool expected(backend, inputs.geometry, 5, layout);
    for (const int64_t slot : {0, 1, 3}) fill_slot(expected, slot, inputs, slot);
    const Indices indices(backend.info().device, {2, 0, -1, 4, 2, 5, INT_MAX, INT_MIN});
    pool.pool().reset_slots(indices.get());
    pool.download();
    EXPECT_EQ(bytes_of(pool), bytes_of(expected));
    const lq_pool_errors errors = pool.read_errors();
    EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
    EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 5);
  }
}

TEST_P(SlotsTest, ACopyIsExactToTheByte) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(3), 7);
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool pool = noisy_pool(backend, inputs, layout);
    const MirroredPool expected = noisy_pool(backend, inputs, layout);
    pool.counter(1, 2) = expected.counter(1, 2) = 16;
    fill_slot(expected, 4, inputs, 1);
    fill_slot(expected, 5, inputs, 1);
    fill_slot(expected, 2, inputs, 6);
    expected.counter(4, 2) = expected.counter(5, 2) = 16;
    // One origin may have several forks; pairs without a slot change nothing.
    if (GetParam().on_host()) {
      ASSERT_EQ(copy(pool, {1, 6, 0, 3, 1, 7, 3}, {4, 2, 3, -1, 5, 3, INT_MAX}), LQ_INVALID_ARGUMENT);
    }
    ASSERT_EQ(copy(pool, {1, 6, 0, 1, 7, 6}, {4, 2, 3, 5, -2, INT_MAX}), LQ_OK) << lq_last_error();
    EXPECT_EQ(bytes_of(pool), bytes_of(expected));
    const lq_pool_errors errors = pool.read_errors();
    EXPECT_EQ(errors.flags, 1u << LQ_ERROR_INDEX);
    EXPECT_EQ(errors.first_position[LQ_ERROR_INDEX], 4);
  }
}

// A fork made mid-window, and its origin, continue with the same bits.
TEST_P(SlotsTest, ACopyContinuesAsItsOrigin) {
  const Context backend = context(2);
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry_of(4), 3);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, inputs.geometry, 1);
  const MirroredPool pool = noisy_pool(backend, inputs);
  ASSERT_EQ(copy(pool, {1}, {2}), LQ_OK) << lq_last_error();
  const InplaceArguments arguments(backend.info().device, {1, 2}, basis);
  for (uint64_t t = 0; t < 20; ++t) {
    const judge::StepInputs token =
        step_inputs_of(judge::StepFamily::kRandom, inputs.geometry, 1, GateFunction::kSoftplus, 700 + t);
    StepArguments step(backend.info().device, {1, 2}, gather(token, {0, 0}));
    step.step_flush(pool, arguments.q0);
    const auto half = static_cast<std::ptrdiff_t>(step.output.size() / 2);
    ASSERT_TRUE(std::equal(step.output.begin(), step.output.begin() + half, step.output.begin() + half,
                           [](Bfloat16 a, Bfloat16 b) { return a.bits == b.bits; }));
  }
  EXPECT_EQ(pool.read_errors().flags, 0u);
}

TEST_P(SlotsTest, CopiesThatDependOnTheirOrderAreRefused) {
  const Context backend = context();
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry_of(1), 6);
  const MirroredPool pool = noisy_pool(backend, inputs);
  const auto before = bytes_of(pool);
  const auto expect_refusal = [&](const std::vector<int32_t>& src, const std::vector<int32_t>& dst, const char* word) {
    EXPECT_EQ(copy(pool, src, dst), LQ_INVALID_ARGUMENT);
    EXPECT_NE(std::string(lq_last_error()).find(word), std::string::npos) << lq_last_error();
    EXPECT_EQ(bytes_of(pool), before);
  };
  if (GetParam().on_host()) {  // a device's memory is not looked at
    expect_refusal({1, 2}, {2, 3}, "slot 2 at dst 0 and src 1");
    expect_refusal({1}, {1}, "slot 1 at dst 0 and src 0");
    expect_refusal({1, 2}, {3, 3}, "slot 3 stands at positions 0 and 1");
  }
  expect_refusal({1, 2}, {3}, "as many entries");
  EXPECT_EQ(copy(pool, {0, 0}, {0, 0}), LQ_OK);
  EXPECT_EQ(copy(pool, {}, {}), LQ_OK);
  EXPECT_EQ(bytes_of(pool), before);
  const Indices indices(backend.info().device, {1});
  lq_tensor wrong = indices.get();
  wrong.dtype = LQ_FLOAT32;
  EXPECT_EQ(lq_pool_copy_slots(pool.pool().get(), &wrong, &indices.get(), nullptr), LQ_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lq_last_error()).find("'src'"), std::string::npos);
  EXPECT_EQ(lq_pool_copy_slots(pool.pool().get(), &indices.get(), nullptr, nullptr), LQ_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lq_last_error()).find("'dst'"), std::string::npos);
  wrong = indices.get();
  wrong.data = pool.device().hcnt.data;
  EXPECT_EQ(lq_pool_reset_slots(pool.pool().get(), &wrong, nullptr), LQ_INVALID_ARGUMENT);
  EXPECT_NE(std::string(lq_last_error()).find("'pool.hcnt'"), std::string::npos);
  EXPECT_EQ(lq_pool_reset_slots(nullptr, &indices.get(), nullptr), LQ_INVALID_ARGUMENT);
}

LQ_FOR_ALL_BACKENDS(SlotsTest);

}  // namespace
}  // namespace leapquant::conformance
