// SPDX-License-Identifier: Apache-2.0
#include "io/tensor_schema.h"

#include <fmt/format.h>

#include <limits>

namespace leapquant::io {
namespace {

using enum Axis;

std::vector<TensorSpec> make_checkpoint_tensors() {
  return {{"codes", DType::kInt8, {kBatch, kHeads, kValue, kKey}, Domain::kCode},
          {"s_k", DType::kFloat32, {kBatch, kHeads, kKey}, Domain::kScale},
          {"s_v", DType::kFloat32, {kBatch, kHeads, kValue}, Domain::kScale},
          {"u", DType::kFloat16, {kBatch, kHeads, kRank, kKey}, Domain::kFinite},
          {"q", DType::kFloat16, {kBatch, kHeads, kRank, kValue}, Domain::kFinite}};
}

std::vector<TensorSpec> make_flush_tensors(Gate gate) {
  std::vector<TensorSpec> specs = make_checkpoint_tensors();
  specs.push_back({"kbuf", DType::kBfloat16, {kBatch, kHeads, kWindow, kKey}, Domain::kFinite});
  specs.push_back({"ubuf", DType::kBfloat16, {kBatch, kHeads, kWindow, kValue}, Domain::kFinite});
  if (gate == Gate::kKda) specs.push_back({"gbuf", DType::kFloat16, {kBatch, kHeads, kWindow, kKey}, Domain::kUnit});
  specs.push_back({"w", DType::kFloat32, {kBatch, kHeads, kWindow}, Domain::kUnit});
  if (gate == Gate::kKda) specs.push_back({"pcum", DType::kFloat32, {kBatch, kHeads, kKey}, Domain::kNonPositive});
  if (gate == Gate::kGdn) specs.push_back({"p", DType::kFloat32, {kBatch, kHeads}, Domain::kUnit});
  specs.push_back({"q0", DType::kFloat32, {kValue, kRank}, Domain::kFinite});
  return specs;
}

}  // namespace

const char* axis_name(Axis axis) {
  constexpr const char* kNames[kAxisCount] = {"batch_size", "num_heads", "value_dim", "key_dim", "window", "rank"};
  return kNames[static_cast<size_t>(axis)];
}

std::span<const TensorSpec> checkpoint_tensors() {
  static const std::vector<TensorSpec> specs = make_checkpoint_tensors();
  return specs;
}

std::span<const TensorSpec> flush_tensors(Gate gate) {
  static const std::vector<TensorSpec> kda = make_flush_tensors(Gate::kKda);
  static const std::vector<TensorSpec> gdn = make_flush_tensors(Gate::kGdn);
  return gate == Gate::kGdn ? gdn : kda;
}

std::string names_of(std::span<const TensorSpec> specs) {
  std::string names;
  for (const TensorSpec& spec : specs) names += (names.empty() ? "" : ", ") + std::string(spec.name);
  return names;
}

AxisSizes::AxisSizes(const Geometry& geometry) {
  (*this)[kHeads] = geometry.num_heads;
  (*this)[kValue] = geometry.value_dim;
  (*this)[kKey] = geometry.key_dim;
  (*this)[kWindow] = geometry.window;
  (*this)[kRank] = geometry.rank;
}

Result<Geometry> AxisSizes::geometry(Gate gate, const Geometry& unfixed) const {
  const AxisSizes fallback(unfixed);
  AxisSizes sizes = *this;
  for (const Axis axis : {kHeads, kValue, kKey, kWindow, kRank}) {
    if (sizes[axis] == 0) sizes[axis] = fallback[axis];
    if (sizes[axis] < 1 || sizes[axis] > std::numeric_limits<int32_t>::max()) {
      return invalid_argument(
          fmt::format("{}: expected a size from 1 to 4096, found {}", axis_name(axis), sizes[axis]));
    }
  }
  Geometry geometry = unfixed;
  geometry.gate = gate;
  geometry.num_heads = static_cast<int32_t>(sizes[kHeads]);
  geometry.num_key_heads = geometry.num_heads;
  geometry.value_dim = static_cast<int32_t>(sizes[kValue]);
  geometry.key_dim = static_cast<int32_t>(sizes[kKey]);
  geometry.window = static_cast<int32_t>(sizes[kWindow]);
  geometry.rank = static_cast<int32_t>(sizes[kRank]);
  LQ_RETURN_IF_ERROR(check_geometry(geometry));
  return geometry;
}

}  // namespace leapquant::io
