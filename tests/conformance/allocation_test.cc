// SPDX-License-Identifier: Apache-2.0
//
// Calls allocate nothing: all memory is taken when contexts and pools are made. Counts every operator new of the
// process.
#include <atomic>
#include <cstdlib>
#include <new>

#include "backends.h"

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
  const Pool pool = filled_pool(backend, inputs, 4);
  std::vector<int32_t> order = {1, 2, 0, 3, 9};
  const lq_tensor idx = index_tensor(order);
  const lq_tensor q0 = judge::public_start_basis(inputs);
  judge::CheckpointTensors output(inputs.geometry, inputs.batch);
  const lq_geometry geometry = judge::public_geometry(inputs.geometry);
  const lq_checkpoint checkpoint = judge::public_checkpoint(inputs.checkpoint);
  const lq_window window = judge::public_window(inputs.window);
  const lq_checkpoint result = judge::public_checkpoint(output);
  const int64_t in_place = allocations_of([&] { pool.flush_inplace(idx, q0); });
  const int64_t functional = allocations_of([&] { backend.flush(geometry, checkpoint, window, q0, result); });
  if (GetParam().name == "ref") {  // written to be read: its matrices come and go, which shows that the count is alive
    EXPECT_GT(in_place, 0);
    EXPECT_GT(functional, 0);
  } else {
    EXPECT_EQ(in_place, 0);
    EXPECT_EQ(functional, 0);
  }
}

LQ_FOR_ALL_BACKENDS(AllocationTest);

}  // namespace
}  // namespace leapquant::conformance
