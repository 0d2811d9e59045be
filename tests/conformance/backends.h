// SPDX-License-Identifier: Apache-2.0
//
// What the conformance suite runs over, and what its tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "judge/families.h"
#include "judge/pool_io.h"
#include "judge/verify.h"
#include "leapquant/leapquant.hpp"
#include "mirrors.h"

namespace leapquant::conformance {

struct BackendUnderTest {
  std::string name;
  std::string target;  // empty: this machine has no device for the backend
  lq_device_type device;

  bool on_host() const { return device == LQ_DEVICE_CPU; }
};

// For messages of the test framework.
inline void PrintTo(const BackendUnderTest& backend, std::ostream* out) {
  *out << backend.name << " " << backend.target;
}

// Every backend with every instruction set that this machine has; a backend on a device once, with or without a device.
std::vector<BackendUnderTest> backends_under_test();
// For what only host memory has: unreadable pages, worker threads, addresses of any alignment, fork.
std::vector<BackendUnderTest> host_backends_under_test();
// What a suite over all backends is run with: all of them. Under the thread sanitizer only those that can have several
// threads, each with its best instruction set: which thread does what, and waits for whom, is decided before an
// instruction set comes into it. Suites whose subject threads are take one of the two above and see everything there
// too.
std::vector<BackendUnderTest> backends_to_run();
// A backend on a device bears the same name on every machine: tests are often listed on one and run on another.
std::string test_name(const testing::TestParamInfo<BackendUnderTest>& info);

// An environment variable that is set, and neither empty nor 0.
bool is_set(const char* variable);

// How often a long test repeats itself: `full` times, or 64 times less often when LQ_TEST_SHORT is set, for runs under
// a tool that slows the program down.
int repetitions(int full);

// Skips the test on a machine with fewer than `count` CUDA devices; where LQ_REQUIRE_GPU (for more than one device:
// LQ_REQUIRE_GPUS=count) is set, it fails instead.
void need_devices(int available, int count);

// Threads are ignored by a backend that has only one.
inline Context context_of(const BackendUnderTest& backend, int32_t threads) {
  return Context(backend.name, backend.name == "cpu" ? threads : 1, backend.target);
}

class BackendTest : public testing::TestWithParam<BackendUnderTest> {
 protected:
  void SetUp() override { need_devices(GetParam().target.empty() ? 0 : 1, 1); }

  Context context(int32_t threads = 1) const { return context_of(GetParam(), threads); }
};

// The same for a suite over both gates.
struct GatedBackend {
  BackendUnderTest backend;
  Gate gate;
};

inline void PrintTo(const GatedBackend& gated, std::ostream* out) {
  PrintTo(gated.backend, out);
  *out << " " << gate_name(gated.gate);
}

class GatedBackendTest : public testing::TestWithParam<GatedBackend> {
 protected:
  void SetUp() override { need_devices(GetParam().backend.target.empty() ? 0 : 1, 1); }

  Context context(int32_t threads = 1) const { return context_of(GetParam().backend, threads); }
  Gate gate() const { return GetParam().gate; }
  Geometry geometry(int32_t heads, int32_t rank = 4) const;
};
std::vector<GatedBackend> backends_with(Gate gate);
std::vector<GatedBackend> host_backends_with(Gate gate);
std::string gated_test_name(const testing::TestParamInfo<GatedBackend>& info);

// Instantiates a suite derived from BackendTest over all of them, or over those on host memory; one derived from
// GatedBackendTest over both gates of these.
#define LQ_FOR_ALL_BACKENDS(suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(backends_to_run()), test_name)
#define LQ_FOR_HOST_BACKENDS(suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(host_backends_under_test()), test_name)
#define LQ_FOR_ALL_BACKENDS_AND_GATES(suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(Kda, suite, testing::ValuesIn(backends_with(Gate::kKda)), gated_test_name); \
  INSTANTIATE_TEST_SUITE_P(Gdn, suite, testing::ValuesIn(backends_with(Gate::kGdn)), gated_test_name)
#define LQ_FOR_HOST_BACKENDS_AND_GATES(suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(Kda, suite, testing::ValuesIn(host_backends_with(Gate::kKda)), gated_test_name); \
  INSTANTIATE_TEST_SUITE_P(Gdn, suite, testing::ValuesIn(host_backends_with(Gate::kGdn)), gated_test_name)

// How much the tests of accuracy run over; less of it where a sanitizer slows the arithmetic down.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int32_t kHeadCounts[] = {1, 12};
inline constexpr int64_t kLargestBatch = 128;
inline constexpr int64_t kFamilyBatch = 1;
#else
inline constexpr int32_t kHeadCounts[] = {1, 4, 8, 12, 16, 24, 32, 48, 64, 96};
inline constexpr int64_t kLargestBatch = 2048;
inline constexpr int64_t kFamilyBatch = 5;
#endif

Geometry geometry_of(int32_t heads, int32_t rank = 4);
// The scalar gate; as many key heads as heads where none are named.
Geometry gdn_geometry(int32_t heads, int32_t rank = 4, int32_t key_heads = 0);
judge::FlushInputs inputs_of(judge::Family family, const Geometry& geometry, int64_t batch, uint64_t seed = 7);

// Item `item` of a tensor [batch, ...] behind what `to` holds.
template <class T>
void append_item(const std::vector<T>& tensor, int64_t item, int64_t batch, std::vector<T>& to) {
  const auto size = static_cast<int64_t>(tensor.size()) / batch;
  to.insert(to.end(), tensor.begin() + item * size, tensor.begin() + (item + 1) * size);
}

// The given items of tensors [batch, ...], in order.
template <class T>
std::vector<T> gathered(const std::vector<T>& tensor, const std::vector<int64_t>& items, int64_t batch) {
  std::vector<T> result;
  for (const int64_t item : items) append_item(tensor, item, batch, result);
  return result;
}

// The same for each tensor of a struct.
template <class Tensors>
Tensors gathered(Tensors tensors, const std::vector<int64_t>& items, int64_t batch) {
  judge::for_each_tensor(tensors, [&](auto& tensor) { tensor = gathered(tensor, items, batch); });
  return tensors;
}

// Flushes a batch of a family and judges it by the strict bound, program by program.
void expect_within_bound(const Context& context, judge::Family family, const Geometry& geometry, int64_t batch);
void expect_within_bound(const Context& context, const judge::FlushInputs& inputs);

// One item of a batch as a batch of its own.
judge::FlushInputs item_of(const judge::FlushInputs& inputs, int64_t item);

// The same programs, one head each.
judge::FlushInputs single_heads(const judge::FlushInputs& inputs);

// Replaces one program of `to`, counted as item * H + head, by that of `from`.
void copy_program(const judge::CheckpointTensors& from, int64_t program, judge::CheckpointTensors& to);

}  // namespace leapquant::conformance
