// SPDX-License-Identifier: Apache-2.0
#include "backends.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace leapquant::conformance {
namespace {

void append(std::vector<unsigned char>& bytes, const void* data, size_t size) {
  const auto* first = static_cast<const unsigned char*>(data);
  bytes.insert(bytes.end(), first, first + size);
}

template <class T>
void append(std::vector<unsigned char>& bytes, const std::vector<T>& values) {
  append(bytes, values.data(), values.size() * sizeof(T));
}

template <class T>
std::vector<T> slice(const std::vector<T>& values, int64_t item, int64_t batch) {
  const auto size = static_cast<int64_t>(values.size()) / batch;
  return {values.begin() + item * size, values.begin() + (item + 1) * size};
}

// Copies part `n` of a tensor whose parts have `elements` elements.
template <class T>
void copy_part(const std::vector<T>& from, int64_t n, int64_t elements, std::vector<T>& to) {
  std::copy_n(from.begin() + n * elements, elements, to.begin() + n * elements);
}

size_t tensor_bytes(const lq_tensor& tensor) {
  size_t bytes = tensor.dtype == LQ_INT8 ? 1 : tensor.dtype == LQ_FLOAT16 || tensor.dtype == LQ_BFLOAT16 ? 2 : 4;
  for (int d = 0; d < tensor.ndim; ++d) bytes *= static_cast<size_t>(tensor.shape[d]);
  return bytes;
}

}  // namespace

std::vector<BackendUnderTest> backends_under_test() {
  std::vector<BackendUnderTest> result;
  for (const lq_backend_info& info : backends()) {
    if (info.device != LQ_DEVICE_CPU) continue;  // the suite's tensors are in host memory; see tests/cuda
    std::istringstream targets(info.targets);
    for (std::string target; std::getline(targets, target, ',');) result.push_back({info.name, target});
  }
  return result;
}

std::string test_name(const testing::TestParamInfo<BackendUnderTest>& info) {
  return info.param.name + "_" + info.param.target;
}

Geometry geometry_of(int32_t heads, int32_t rank) {
  Geometry geometry;
  geometry.num_heads = geometry.num_key_heads = heads;
  geometry.rank = rank;
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
  one.checkpoint.codes = slice(inputs.checkpoint.codes, item, inputs.batch);
  one.checkpoint.s_k = slice(inputs.checkpoint.s_k, item, inputs.batch);
  one.checkpoint.s_v = slice(inputs.checkpoint.s_v, item, inputs.batch);
  one.checkpoint.u = slice(inputs.checkpoint.u, item, inputs.batch);
  one.checkpoint.q = slice(inputs.checkpoint.q, item, inputs.batch);
  one.window.kbuf = slice(inputs.window.kbuf, item, inputs.batch);
  one.window.ubuf = slice(inputs.window.ubuf, item, inputs.batch);
  one.window.w = slice(inputs.window.w, item, inputs.batch);
  one.window.gbuf = slice(inputs.window.gbuf, item, inputs.batch);
  one.window.pcum = slice(inputs.window.pcum, item, inputs.batch);
  return one;
}

void copy_program(const judge::CheckpointTensors& from, int64_t program, judge::CheckpointTensors& to) {
  const Geometry& geometry = from.geometry;
  copy_part(from.codes, program, geometry.state_elements(), to.codes);
  copy_part(from.s_k, program, geometry.key_dim, to.s_k);
  copy_part(from.s_v, program, geometry.value_dim, to.s_v);
  copy_part(from.u, program, int64_t{geometry.rank} * geometry.key_dim, to.u);
  copy_part(from.q, program, int64_t{geometry.rank} * geometry.value_dim, to.q);
}

judge::CheckpointTensors flush_or_die(const Context& context, const judge::FlushInputs& inputs) {
  Result<judge::CheckpointTensors> result = judge::flush(context, inputs);
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result.value());
}

std::vector<unsigned char> bytes_of(const judge::CheckpointTensors& tensors) {
  std::vector<unsigned char> bytes;
  append(bytes, tensors.codes);
  append(bytes, tensors.s_k);
  append(bytes, tensors.s_v);
  append(bytes, tensors.u);
  append(bytes, tensors.q);
  return bytes;
}

std::vector<unsigned char> bytes_of(const Pool& pool) {
  const lq_pool_tensors t = pool.tensors();
  std::vector<unsigned char> bytes;
  for (const lq_tensor* tensor : {&t.raw, &t.kbuf, &t.ubuf, &t.w, &t.gbuf, &t.pcum, &t.hcnt}) {
    append(bytes, tensor->data, tensor_bytes(*tensor));
  }
  return bytes;
}

lq_tensor index_tensor(std::vector<int32_t>& indices) {
  return tensor(indices.data(), LQ_INT32, {static_cast<int64_t>(indices.size())});
}

Pool filled_pool(const Context& context, const judge::FlushInputs& inputs, int64_t num_slots, lq_layout layout) {
  Pool pool(context, judge::public_geometry(inputs.geometry), num_slots, layout);
  for (int64_t item = 0; item < inputs.batch; ++item) {
    judge::write_slot(pool.tensors(), item + 1, inputs, item);
    judge::set_counters(pool.tensors(), item + 1, inputs.geometry.window);
  }
  return pool;
}

}  // namespace leapquant::conformance
