// SPDX-License-Identifier: Apache-2.0
//
// Nothing is written beside the tensors of a call: each lies between guard bytes. (Reads are the memory checker's to
// find.)
#include <algorithm>
#include <climits>
#include <cmath>

#include "draft_calls.h"
#include "fixture.h"

namespace leapquant::cuda_test {
namespace {

using namespace conformance;  // NOLINT(google-build-using-namespace): the suite's own helpers

constexpr size_t kGuard = 4096;
constexpr unsigned char kFill = 0xA5;

// Moves device tensors, with their contents, between guard bytes.
class Guards {
 public:
  void around(lq_tensor& tensor) {
    if (tensor.dtype == LQ_DTYPE_NONE) return;  // of the other gate
    const size_t bytes = tensor_bytes(tensor);
    const DeviceArray& memory = arrays_.emplace_back(bytes + 2 * kGuard);
    check_cuda(cudaMemset(memory.data(), kFill, memory.bytes()));
    check_cuda(cudaMemcpy(memory.data() + kGuard, tensor.data, bytes, cudaMemcpyDeviceToDevice));
    check_cuda(cudaDeviceSynchronize());
    tensor.data = memory.data() + kGuard;
  }

  void expect_intact() const {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      const std::vector<unsigned char> bytes = arrays_[i].download();
      const auto intact = [](auto first) {
        return std::all_of(first, first + kGuard, [](int b) { return b == kFill; });
      };
      EXPECT_TRUE(intact(bytes.begin())) << "in front of tensor " << i;
      EXPECT_TRUE(intact(bytes.end() - kGuard)) << "behind tensor " << i;
    }
  }

 private:
  std::vector<DeviceArray> arrays_;
};

class BoundsTest : public DeviceTest {};

TEST_F(BoundsTest, NothingBesideAPoolIsWritten) {
  const Context context("cuda");
  for (const int32_t rank : {1, 4, 8}) {
    for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
      const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(3, rank), 3);
      const MirroredPool model = filled_pool(context, inputs, 4, layout);
      lq_pool_tensors memory = model.device();
      Guards guards;
      for (const auto member : kPoolOwners) guards.around(memory.*member);
      const MirroredPool pool(context,
                              {judge::public_geometry(inputs.geometry), layout, 4, &memory, LQ_POOL_KEEP_CONTENTS});
      const std::vector<int32_t> order = {0, 2, 0, -1, 4, INT_MAX, INT_MIN, 3};
      pool.flush(order, inputs);
      model.flush(order, inputs);
      guards.expect_intact();
      EXPECT_EQ(bytes_of(pool), bytes_of(model));
      EXPECT_EQ(pool.read_errors().first_position[LQ_ERROR_INDEX], 4);
    }
  }
}

TEST_F(BoundsTest, NothingBesideAResultIsWritten) {
  const Context context("cuda");
  for (const int32_t rank : {1, 2, 4, 8}) {
    const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(5, rank), 3);
    FlushCall call(context, inputs);
    Guards guards;
    for (lq_tensor* tensor : {&call.result.codes, &call.result.s_k, &call.result.s_v, &call.result.u, &call.result.q}) {
      guards.around(*tensor);
    }
    check(call.enqueue(context));
    guards.expect_intact();
  }
}

// A draft of all slots across the ends of windows, its commit, an export and an import.
void speculate_between_guards(const Pool& pool, const judge::StepInputs& inputs, const judge::FlushInputs& basis) {
  const int64_t heads = inputs.geometry.num_heads;
  DraftArguments arguments(kDevice, {2, 0, 3, 9}, 2, inputs, basis.q0);
  arguments.accepted_values = {2, 2, 1, 1};
  arguments.upload();
  const DeviceArray states(static_cast<size_t>(2 * heads * 128 * 128) * sizeof(float));
  check_cuda(cudaMemset(states.data(), 0, states.bytes()));
  lq_tensor state = on_device(tensor(states.data(), LQ_FLOAT32, {2, heads, 128, 128}));
  const InplaceArguments slots(kDevice, {3, 2}, basis);
  Guards rows;
  rows.around(arguments.o);
  rows.around(arguments.scratch);
  rows.around(state);
  check(arguments.enqueue_draft(pool));
  check(arguments.enqueue_commit(pool));
  pool.export_state(slots.indices, state);
  pool.import_state(slots.indices, state, LQ_STATE_KV, nullptr, slots.q0);
  rows.expect_intact();
}

void step_between_guards(const Geometry& geometry, lq_layout layout) {
  const Context context("cuda");
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry, 8);
  const judge::FlushInputs basis = inputs_of(judge::Family::kRandom, geometry, 1);
  const MirroredPool model(context, geometry, 4, layout);
  for (int64_t slot = 0; slot < 4; ++slot) fill_slot(model, slot, inputs, slot);
  model.upload();
  lq_pool_tensors memory = model.device();
  Guards guards;
  for (const auto member : kPoolOwners) guards.around(memory.*member);
  const MirroredPool pool(context, {judge::public_geometry(geometry), layout, 4, &memory, LQ_POOL_KEEP_CONTENTS});
  const std::vector<int32_t> order = {0, 2, 0, -1, 4, INT_MAX, INT_MIN, 3};
  const InplaceArguments flush(kDevice, {3, 1}, basis);
  const InplaceArguments sources(kDevice, {2, 9}, basis);
  for (const MirroredPool* const p : {&pool, &model}) {
    StepArguments arguments(kDevice, order, inputs);
    Guards rows;
    rows.around(arguments.o);
    check(arguments.enqueue(p->pool()));
    speculate_between_guards(p->pool(), inputs, basis);
    p->pool().flush_now(flush.indices, flush.q0);
    p->pool().copy_slots(sources.indices, flush.indices);
    p->pool().reset_slots(sources.indices);
    rows.expect_intact();
    p->download();
  }
  guards.expect_intact();
  EXPECT_EQ(bytes_of(pool), bytes_of(model));
  EXPECT_EQ(pool.read_errors().first_position[LQ_ERROR_INDEX], 1);
}

TEST_F(BoundsTest, NothingBesideASteppedPoolIsWritten) {
  for (const int32_t rank : {1, 4, 8}) {
    for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
      step_between_guards(geometry_of(3, rank), layout);
      step_between_guards(gdn_geometry(3, rank, 1), layout);
    }
  }
}

TEST_F(BoundsTest, NothingBesideTheResultsOfAStepIsWritten) {
  const Context context("cuda");
  for (const Geometry& geometry : {geometry_of(5, 2), gdn_geometry(5, 2)}) {
    StepCall call(context, step_inputs_of(judge::StepFamily::kRandom, geometry, 3));
    Guards guards;
    for (const auto member : judge::kResultMembers) {
      guards.around(call.result.*member);
    }
    check(call.enqueue(context));
    guards.expect_intact();
  }
}

float number(float value) { return value; }
template <class T>
float number(T value) {
  return to_float(value);
}

// There is no error word to say so: a program with a count that is none gets results that are no numbers, and no other
// program does.
TEST_F(BoundsTest, CountsThatAreNoneGiveNoNumbers) {
  constexpr int64_t kPrograms = 6;
  constexpr int64_t kWrong = 4;
  const Context context("cuda");
  for (const Geometry& geometry : {geometry_of(3), gdn_geometry(3)}) {
    const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry, 2);
    const judge::StepTensors expected = step_or_die(context, inputs);
    for (const int32_t count : {-1, 16, 17, INT_MAX, INT_MIN}) {
      judge::StepInputs wrong = inputs;
      wrong.h[kWrong] = count;
      judge::StepTensors result = step_or_die(context, wrong);
      const auto replace = [](auto& values, const auto& wanted) {
        const int64_t size = std::ssize(values) / kPrograms;
        for (int64_t i = kWrong * size; i < (kWrong + 1) * size; ++i) {
          ASSERT_TRUE(std::isnan(number(values[i])));
          values[i] = wanted[i];
        }
      };
      replace(result.o, expected.o);
      replace(result.k_row, expected.k_row);
      replace(result.u_row, expected.u_row);
      replace(result.g_row, expected.g_row);
      replace(result.w_new, expected.w_new);
      replace(result.pcum_new, expected.pcum_new);
      replace(result.p_new, expected.p_new);
      EXPECT_EQ(bytes_of(result), bytes_of(expected));
    }
  }
}

}  // namespace
}  // namespace leapquant::cuda_test
