// SPDX-License-Identifier: Apache-2.0
//
// Every buffer of a call ends, or begins, at an unreadable page: a wide load or store that leaves its tensor by one
// byte ends the test.
#include <sys/mman.h>
#include <unistd.h>

#include <climits>
#include <memory>

#include "backends.h"
#include "draft_calls.h"
#include "step_calls.h"

namespace leapquant::conformance {
namespace {

enum class Side { kEnd, kBegin };

// Memory with an unreadable page directly behind (kEnd) or in front of it (kBegin).
class GuardedBuffer {
 public:
  GuardedBuffer(size_t bytes, Side side) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t pages = (bytes + page - 1) / page * page;
    size_ = pages + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(base_ + page, pages, PROT_READ | PROT_WRITE);
    data_ = side == Side::kEnd ? base_ + page + pages - bytes : base_ + page;
  }
  ~GuardedBuffer() { munmap(base_, size_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  void* data() const { return data_; }

 private:
  char* base_;
  char* data_;
  size_t size_;
};

using Buffers = std::vector<std::unique_ptr<GuardedBuffer>>;

// Moves a tensor's elements into a guarded buffer.
template <class T>
void guard(lq_tensor& tensor, const std::vector<T>& values, Side side, Buffers& buffers) {
  buffers.push_back(std::make_unique<GuardedBuffer>(values.size() * sizeof(T), side));
  std::memcpy(buffers.back()->data(), values.data(), values.size() * sizeof(T));
  tensor.data = buffers.back()->data();
}

void guard_checkpoint(lq_checkpoint& tensors, const judge::CheckpointTensors& values, Side side, Buffers& buffers) {
  guard(tensors.codes, values.codes, side, buffers);
  guard(tensors.s_k, values.s_k, side, buffers);
  guard(tensors.s_v, values.s_v, side, buffers);
  guard(tensors.u, values.u, side, buffers);
  guard(tensors.q, values.q, side, buffers);
}

// A tensor's bytes in a guarded buffer.
void guard_bytes(lq_tensor& tensor, Side side, Buffers& buffers) {
  if (tensor.dtype == LQ_DTYPE_NONE) return;
  const size_t bytes = tensor_bytes(tensor);
  buffers.push_back(std::make_unique<GuardedBuffer>(bytes, side));
  std::memcpy(buffers.back()->data(), tensor.data, bytes);
  tensor.data = buffers.back()->data();
}

void guard_window(lq_window& window, Side side, Buffers& buffers) {
  for (lq_tensor* const tensor : {&window.kbuf, &window.ubuf, &window.w, &window.gbuf, &window.pcum, &window.p}) {
    guard_bytes(*tensor, side, buffers);
  }
}

using MemoryBoundsTest = GatedBackendTest;

TEST_P(MemoryBoundsTest, NothingOutsideTheTensorsIsTouched) {
  for (const int32_t rank : {1, 2, 4, 8}) {
    const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry(3, rank), 2);
    const Context backend = context();
    const auto expected = bytes_of(flush_or_die(backend, inputs));
    for (const Side side : {Side::kEnd, Side::kBegin}) {
      Buffers buffers;
      lq_checkpoint checkpoint = judge::public_checkpoint(inputs.checkpoint);
      guard_checkpoint(checkpoint, inputs.checkpoint, side, buffers);
      lq_window window = judge::public_window(inputs.window);
      guard_window(window, side, buffers);
      lq_tensor q0 = judge::public_start_basis(inputs);
      guard(q0, inputs.q0, side, buffers);
      judge::CheckpointTensors result(inputs.geometry, inputs.batch);
      lq_checkpoint guarded_result = judge::public_checkpoint(result);
      guard_checkpoint(guarded_result, result, side, buffers);

      backend.flush(judge::public_geometry(inputs.geometry), checkpoint, window, q0, guarded_result);
      std::memcpy(result.codes.data(), guarded_result.codes.data, result.codes.size());
      std::memcpy(result.s_k.data(), guarded_result.s_k.data, result.s_k.size() * 4);
      std::memcpy(result.s_v.data(), guarded_result.s_v.data, result.s_v.size() * 4);
      std::memcpy(result.u.data(), guarded_result.u.data, result.u.size() * 2);
      std::memcpy(result.q.data(), guarded_result.q.data, result.q.size() * 2);
      EXPECT_EQ(bytes_of(result), expected);
    }
  }
}

TEST_P(MemoryBoundsTest, NothingOutsideAPoolIsTouched) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry(2), 2);
  const Context backend = context();
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool model = filled_pool(backend, inputs, 3, layout);
    lq_pool_tensors memory = model.device();
    Buffers buffers;
    for (const auto member : kPoolOwners) guard_bytes(memory.*member, Side::kEnd, buffers);
    const Pool guarded(backend, {judge::public_geometry(inputs.geometry), layout, 3, &memory, LQ_POOL_KEEP_CONTENTS});
    const std::vector<int32_t> order = {1, 3, INT_MAX, INT_MIN, -1, 0, 2};  // 3 and more lie beyond the pool
    GuardedBuffer indices(order.size() * sizeof(int32_t), Side::kEnd);
    std::memcpy(indices.data(), order.data(), order.size() * sizeof(int32_t));
    guarded.flush_inplace(tensor(indices.data(), LQ_INT32, {std::ssize(order)}), judge::public_start_basis(inputs));
    EXPECT_EQ(guarded.read_errors().first_position[LQ_ERROR_INDEX], 1);
    std::vector<int32_t> slots = {1, 2};
    EXPECT_EQ(bytes_of(judge::read_slots(guarded.tensors(), inputs.geometry, slots)),
              bytes_of(flush_or_die(backend, inputs)));
  }
}

TEST_P(MemoryBoundsTest, AStepTouchesNothingOutsideTheTensors) {
  const Context backend = context();
  for (const int32_t rank : {1, 2, 4, 8}) {
    for (const GateFunction gate : judge::all_gate_functions()) {
      const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kStructured, geometry(7, rank), 1, gate);
      const auto expected = bytes_of(step_or_die(backend, inputs));
      for (const Side side : {Side::kEnd, Side::kBegin}) {
        Buffers buffers;
        lq_checkpoint checkpoint = judge::public_checkpoint(inputs.checkpoint);
        guard_checkpoint(checkpoint, inputs.checkpoint, side, buffers);
        lq_window window = judge::public_window(inputs.window);
        guard_window(window, side, buffers);
        lq_tensor h = judge::public_entries(inputs);
        guard_bytes(h, side, buffers);
        lq_token token = judge::public_token(inputs);
        for (const auto member : judge::kTokenMembers) guard_bytes(token.*member, side, buffers);
        judge::StepTensors result(inputs.geometry, inputs.batch);
        const lq_step_result unguarded = judge::public_result(result);
        lq_step_result guarded = unguarded;
        for (const auto member : judge::kResultMembers) guard_bytes(guarded.*member, side, buffers);
        backend.step(judge::public_geometry(inputs.geometry), checkpoint, window, h, token, guarded,
                     judge::public_params(inputs.gate));
        for (const auto member : judge::kResultMembers) {
          if ((guarded.*member).dtype == LQ_DTYPE_NONE) continue;
          std::memcpy((unguarded.*member).data, (guarded.*member).data, tensor_bytes(guarded.*member));
        }
        EXPECT_EQ(bytes_of(result), expected);
      }
    }
  }
}

TEST_P(MemoryBoundsTest, AStepTouchesNothingOutsideAPool) {
  const Context backend = context();
  const std::vector<int32_t> order = {2, 3, INT_MAX, INT_MIN, -1, 0, 1};  // 3 and more lie beyond the pool
  const judge::StepInputs inputs =
      gather(step_inputs_of(judge::StepFamily::kRandom, geometry(2), 2), {1, 0, 0, 0, 0, 0, 0});
  const judge::StepTensors expected = step_or_die(backend, inputs);
  for (const lq_layout layout : {LQ_LAYOUT_COMPACT, LQ_LAYOUT_PADDED}) {
    const MirroredPool model(backend, inputs.geometry, 3, layout);
    fill_slot(model, 2, inputs, 0);
    fill_slot(model, 1, inputs, 6);
    model.upload();
    lq_pool_tensors memory = model.device();
    Buffers buffers;
    for (const auto member : kPoolOwners) guard_bytes(memory.*member, Side::kEnd, buffers);
    const Pool guarded(backend, {judge::public_geometry(inputs.geometry), layout, 3, &memory, LQ_POOL_KEEP_CONTENTS});
    StepArguments arguments(backend.info().device, order, inputs, TokenForm::kPacked);
    guard_bytes(arguments.indices, Side::kEnd, buffers);
    for (const auto member : judge::kTokenMembers) guard_bytes(arguments.token.*member, Side::kEnd, buffers);
    guard_bytes(arguments.o, Side::kEnd, buffers);
    check(arguments.enqueue(guarded));
    EXPECT_EQ(guarded.read_errors().first_position[LQ_ERROR_INDEX], 1);
    const auto* const rows = static_cast<const Bfloat16*>(arguments.o.data);
    for (const int64_t n : {0, 1, 12, 13}) {
      for (int64_t v = 0; v < 128; ++v) ASSERT_EQ(rows[n * 128 + v].bits, expected.o[n * 128 + v].bits);
    }
  }
}

TEST_P(MemoryBoundsTest, ImportsAndExportsTouchNothingOutsideTheStates) {
  const Context backend = context();
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry(2), 2);
  const MirroredPool pool = filled_pool(backend, inputs, 3);
  std::vector<int32_t> slots = {2, 1};
  std::vector<int32_t> offsets = {1, 2, 3, 4};
  const lq_tensor q0 = judge::public_start_basis(inputs);
  std::vector<float> values(4 * 128 * 128);
  std::vector<Bfloat16> narrow_values(values.size());
  for (const lq_state_order order : {LQ_STATE_VK, LQ_STATE_KV}) {
    for (const Side side : {Side::kEnd, Side::kBegin}) {
      Buffers buffers;
      lq_tensor idx = tensor(slots.data(), LQ_INT32, {2});
      lq_tensor offset = tensor(offsets.data(), LQ_INT32, {2, 2});
      lq_tensor state = tensor(values.data(), LQ_FLOAT32, {2, 2, 128, 128});
      lq_tensor narrow = tensor(narrow_values.data(), LQ_BFLOAT16, {2, 2, 128, 128});
      for (lq_tensor* const t : {&idx, &offset, &state, &narrow}) guard_bytes(*t, side, buffers);
      pool.pool().export_state(idx, state, order);
      const MirroredPool target(backend, inputs.geometry, 3);
      target.pool().import_state(idx, state, order, &offset, q0);
      target.pool().import_state(idx, narrow, order, &offset, q0);
      EXPECT_EQ(pool.read_errors().flags | target.read_errors().flags, 0u);
    }
  }
}

TEST_P(MemoryBoundsTest, ADraftTouchesNothingOutsideScratchAndOutput) {
  const Context backend = context();
  const judge::StepInputs tokens = step_inputs_of(judge::StepFamily::kRandom, geometry(2), 15);
  const std::vector<float> q0 = inputs_of(judge::Family::kRandom, tokens.geometry, 1).q0;
  for (const Side side : {Side::kEnd, Side::kBegin}) {
    const MirroredPool pool(backend, tokens.geometry, 3);
    for (const int64_t slot : {1, 2}) judge::set_counters(pool.host(), slot, 13);
    pool.upload();
    DraftArguments arguments(backend.info().device, {2, 0, 1}, 5, tokens, q0);
    std::fill(arguments.accepted_values.begin(), arguments.accepted_values.end(), 5);
    arguments.upload();
    Buffers buffers;
    for (lq_tensor* const t :
         {&arguments.indices, &arguments.scratch, &arguments.accepted, &arguments.q0, &arguments.o}) {
      guard_bytes(*t, side, buffers);
    }
    for (const auto member : judge::kTokenMembers) guard_bytes(arguments.token.*member, side, buffers);
    check(arguments.enqueue_draft(pool.pool()));
    check(arguments.enqueue_commit(pool.pool()));
    pool.download();
    EXPECT_EQ(pool.read_errors().flags, 0u);
    EXPECT_EQ(pool.counter(2, 1), 2);
  }
}

LQ_FOR_HOST_BACKENDS_AND_GATES(MemoryBoundsTest);

}  // namespace
}  // namespace leapquant::conformance
