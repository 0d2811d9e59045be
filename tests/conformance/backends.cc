// SPDX-License-Identifier: Apache-2.0
#include "backends.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace leapquant::conformance {
namespace {

// Copies part `n` of a tensor whose parts have `elements` elements.
template <class T>
void copy_part(const std::vector<T>& from, int64_t n, int64_t elements, std::vector<T>& to) {
  std::copy_n(from.begin() + n * elements, elements, to.begin() + n * elements);
}

int64_t number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoll(text, nullptr, 10);
}

}  // namespace

std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> result;
  for (const lq_backend_info& info : backends()) {
    std::istringstream targets(info.targets);
    std::string target;
    if (info.device != LQ_DEVICE_CPU) {
      std::getline(targets, target, ',');
      result.push_back({info.name, target, info.device});
      continue;
    }
    while (std::getline(targets, target, ',')) result.push_back({info.name, target, info.device});
  }
  return result;
}

std::vector<BackendUnderTest> host_backends_under_test() {
  std::vector<BackendUnderTest> result = backends_under_test();
  std::erase_if(result, [](const BackendUnderTest& backend) { return !backend.on_host(); });
  return result;
}

std::vector<BackendUnderTest> backends_to_run() {
  std::vector<BackendUnderTest> result = backends_under_test();
#if defined(__SANITIZE_THREAD__)
  // The best comes first.
  const auto is_same_backend = [](const BackendUnderTest& a, const BackendUnderTest& b) { return a.name == b.name; };
  result.erase(std::unique(result.begin(), result.end(), is_same_backend), result.end());
  std::erase_if(result, [](const BackendUnderTest& backend) {
    return backend.on_host() && context_of(backend, 2).info().threads < 2;
  });
#endif
  return result;
}

std::string test_name(const testing::TestParamInfo<BackendUnderTest>& info) {
  return info.param.on_host() ? info.param.name + "_" + info.param.target : info.param.name;
}

std::vector<GatedBackend> backends_with(Gate gate) {
  std::vector<GatedBackend> result;
  for (const BackendUnderTest& backend : backends_to_run()) result.push_back({backend, gate});
  return result;
}

std::vector<GatedBackend> host_backends_with(Gate gate) {
  std::vector<GatedBackend> result;
  for (const BackendUnderTest& backend : host_backends_under_test()) result.push_back({backend, gate});
  return result;
}

std::string gated_test_name(const testing::TestParamInfo<GatedBackend>& info) {
  return test_name({info.param.backend, info.index});
}

Geometry GatedBackendTest::geometry(int32_t heads, int32_t rank) const {
  return gate() == Gate::kKda ? geometry_of(heads, rank) : gdn_geometry(heads, rank);
}

bool is_set(const char* variable) {
  const char* const text = std::getenv(variable);
  return text != nullptr && *text != '\0' && std::string(text) != "0";
}

int repetitions(int full) { return is_set("LQ_TEST_SHORT") ? std::max(1, full / 64) : full; }

void need_devices(int available, int count) {
  if (available >= count) return;
  const bool required = count == 1 ? is_set("LQ_REQUIRE_GPU") : number_in("LQ_REQUIRE_GPUS") >= count;
  if (required) FAIL() << count << " CUDA devices are required, and there are " << available;
  GTEST_SKIP() << "needs " << count << " CUDA devices, and there are " << available;
}

Geometry geometry_of(int32_t heads, int32_t rank) {
  Geometry geometry;
  geometry.num_heads = geometry.num_key_heads = heads;
  geometry.rank = rank;
  return geometry;
}

Geometry gdn_geometry(int32_t heads, int32_t rank, int32_t key_heads) {
  Geometry geometry = geometry_of(heads, rank);
  geometry.gate = Gate::kGdn;
  geometry.num_key_heads = key_heads == 0 ? heads : key_heads;
  return geometry;
}

judge::FlushInputs inputs_of(judge::Family family, const Geometry& geometry, int64_t batch, uint64_t seed) {
  judge::FamilyRequest request;
  request.geometry = geometry;
  request.family = family;
  request.batch = batch;
  request.seed = seed;
  Result<judge::FlushInputs> inputs = judge::make_inputs(request);
  if (!inputs.ok()) throw std::runtime_error(inputs.status().message());
  return std::move(inputs.value());
}

judge::FlushInputs item_of(const judge::FlushInputs& inputs, int64_t item) {
  judge::FlushInputs one = inputs;
  one.batch = 1;
  one.checkpoint = gathered(inputs.checkpoint, {item}, inputs.batch);
  one.window = gathered(inputs.window, {item}, inputs.batch);
  return one;
}

void expect_within_bound(const Context& context, judge::Family family, const Geometry& geometry, int64_t batch) {
  SCOPED_TRACE(std::string(judge::family_name(family)) + " " + to_string(geometry) + " batch " + std::to_string(batch));
  expect_within_bound(context, inputs_of(family, geometry, batch, 11));
}

void expect_within_bound(const Context& context, const judge::FlushInputs& inputs) {
  const judge::Judgement judged = judge::judge_flush(inputs, flush_or_die(context, inputs).view(), 0);
  EXPECT_EQ(judged.programs, inputs.programs());
  EXPECT_EQ(judged.over, 0) << "worst ratio " << judged.worst_ratio << ", program " << judged.worst_program;
  EXPECT_TRUE(judged.finite);
}

judge::FlushInputs single_heads(const judge::FlushInputs& inputs) {
  judge::FlushInputs result = inputs;  // [B, H, ...] and [B H, 1, ...] are the same bytes
  result.geometry.num_heads = result.geometry.num_key_heads = 1;
  result.checkpoint.geometry = result.window.geometry = result.geometry;
  result.batch = inputs.programs();
  return result;
}

void copy_program(const judge::CheckpointTensors& from, int64_t program, judge::CheckpointTensors& to) {
  const Geometry& geometry = from.geometry;
  copy_part(from.codes, program, geometry.state_elements(), to.codes);
  copy_part(from.s_k, program, geometry.key_dim, to.s_k);
  copy_part(from.s_v, program, geometry.value_dim, to.s_v);
  copy_part(from.u, program, int64_t{geometry.rank} * geometry.key_dim, to.u);
  copy_part(from.q, program, int64_t{geometry.rank} * geometry.value_dim, to.q);
}

}  // namespace leapquant::conformance
