// SPDX-License-Identifier: Apache-2.0
//
// Calls allocate nothing: all memory is taken when contexts and pools are made. Counts every operator new of the
// process.
#include <atomic>
#include <cstdlib>
#include <new>

#include "backends.h"
#include "draft_calls.h"
#include "step_calls.h"

namespace {

std::atomic<int64_t> allocations{0};

}  // namespace

// Not inlined: the compiler would see half of a pair and call it a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto step = static_cast<size_t>(alignment);
  if (void* const memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t /*bytes*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(memory);
}

namespace leapquant::conformance {
namespace {

using AllocationTest = BackendTest;

template <class Call>
int64_t allocations_of(const Call& call) {
  call();  // what is made once, on a first call, doesn't count
  const int64_t before = allocations;
  call();
  return allocations - before;
}

TEST_P(AllocationTest, CallsAllocateNothing) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 3);
  const Context backend = context(2);
  const MirroredPool pool = filled_pool(backend, inputs, 4);
  const InplaceArguments arguments(backend.info().device, {1, 2, 0, 3, 9}, inputs);
  const FlushCall call(backend, inputs);
  const int64_t in_place = allocations_of([&] { pool.pool().flush_inplace(arguments.indices, arguments.q0); });
  const int64_t functional = allocations_of([&] { check(call.enqueue(backend)); });
  if (GetParam().name == "ref") {  // written to be read: its matrices come and go, which shows that the count is alive
    EXPECT_GT(in_place, 0);
    EXPECT_GT(functional, 0);
  } else {
    EXPECT_EQ(in_place, 0);
    EXPECT_EQ(functional, 0);
  }
}

using StepAllocationTest = GatedBackendTest;

TEST_P(StepAllocationTest, StepsAllocateNothing) {
  const Context backend = context(2);
  const judge::StepInputs inputs = step_inputs_of(judge::StepFamily::kRandom, geometry(4), 5);
  const MirroredPool pool(backend, inputs.geometry, 4);
  for (int64_t slot = 1; slot < 4; ++slot) judge::set_counters(pool.host(), slot, 3);
  pool.upload();
  const StepArguments arguments(backend.info().device, {1, 2, 0, 3, 9}, inputs, TokenForm::kPacked);
  const StepCall call(backend, inputs);
  const int64_t in_place = allocations_of([&] { check(arguments.enqueue(pool.pool())); });
  const int64_t functional = allocations_of([&] { check(call.enqueue(backend)); });
  if (GetParam().backend.name == "ref") {
    EXPECT_GT(in_place, 0);
    EXPECT_GT(functional, 0);
  } else {
    EXPECT_EQ(in_place, 0);
    EXPECT_EQ(functional, 0);
  }
}

TEST_P(StepAllocationTest, ImportsExportsAndDraftsAllocateNothing) {
  const Context backend = context(2);
  const judge::StepInputs tokens = step_inputs_of(judge::StepFamily::kRandom, geometry(2), 12);
  const MirroredPool pool(backend, tokens.geometry, 4);
  for (int64_t slot = 1; slot < 4; ++slot) judge::set_counters(pool.host(), slot, 14);
  pool.upload();
  const std::vector<float> q0 = inputs_of(judge::Family::kRandom, tokens.geometry, 1).q0;
  DraftArguments arguments(backend.info().device, {1, 0, 9}, 4, tokens, q0);
  arguments.accepted_values[0] = 4;
  arguments.upload();
  std::vector<float> states(3 * 2 * 128 * 128);
  Mirrors mirrors(backend.info().device);
  const lq_tensor state = mirrors.add(tensor(states.data(), LQ_FLOAT32, {3, 2, 128, 128}));
  const int64_t drafted = allocations_of([&] { check(arguments.enqueue_draft(pool.pool())); });
  const int64_t committed = allocations_of([&] {  // a second time nothing is appended: the draft is made anew
    check(arguments.enqueue_draft(pool.pool()));
    check(arguments.enqueue_commit(pool.pool()));
  });
  const int64_t exported = allocations_of([&] { pool.pool().export_state(arguments.indices, state, LQ_STATE_KV); });
  const int64_t imported =
      allocations_of([&] { pool.pool().import_state(arguments.indices, state, LQ_STATE_KV, nullptr, arguments.q0); });
  for (const int64_t count : {drafted, committed, exported, imported}) {
    EXPECT_EQ(count == 0, GetParam().backend.name != "ref") << count;
  }
}

LQ_FOR_ALL_BACKENDS(AllocationTest);
LQ_FOR_HOST_BACKENDS_AND_GATES(StepAllocationTest);

}  // namespace
}  // namespace leapquant::conformance
