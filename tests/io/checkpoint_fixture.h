// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a small flush, valid as they stand, for tests to save, bend and load.
#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/numerics.h"
#include "io/checkpoint_file.h"

namespace leapquant::io {

inline const Geometry kSmallGeometry = {
    .num_heads = 2, .num_key_heads = 2, .value_dim = 8, .key_dim = 16, .window = 4, .rank = 3};

// Values inside every domain: random codes, scales in (0, 1], gates and weights in [0, 1], log-decays in [-1, 0].
inline void fill(LoadedTensor& tensor, Domain domain, std::mt19937& random) {
  const auto value = [&] {
    const float unit = static_cast<float>(random() % 1000 + 1) / 1000.0f;
    if (domain == Domain::kNonPositive) return -unit;
    return domain == Domain::kFinite ? unit - 0.5f : unit;
  };
  const auto store = [&](auto convert) {
    const size_t size = sizeof(convert(0.0f));
    for (size_t at = 0; at < tensor.data.size(); at += size) {
      const auto element = convert(value());
      std::memcpy(tensor.data.data() + at, &element, size);
    }
  };
  if (tensor.dtype == DType::kInt8) store([](float unit) { return static_cast<int8_t>(unit * 254.0f - 127.0f); });
  if (tensor.dtype == DType::kFloat16) store([](float x) { return to_half(x); });
  if (tensor.dtype == DType::kBfloat16) store([](float x) { return to_bfloat16(x); });
  if (tensor.dtype == DType::kFloat32) store([](float x) { return x; });
}

inline ProgramFile make_inputs(Geometry geometry = kSmallGeometry, int64_t batch = 3) {
  ProgramFile file{geometry, batch, {}};
  AxisSizes sizes(geometry);
  sizes[Axis::kBatch] = batch;
  std::mt19937 random(7);
  for (const TensorSpec& spec : flush_tensors(geometry.gate)) {
    LoadedTensor tensor{spec.name, spec.dtype, {}, {}};
    int64_t bytes = dtype_bytes(spec.dtype);
    for (const Axis axis : spec.axes) {
      tensor.shape.push_back(sizes[axis]);
      bytes *= sizes[axis];
    }
    tensor.data.resize(static_cast<size_t>(bytes));
    fill(tensor, spec.domain, random);
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

inline Status save_inputs(const std::string& path, const ProgramFile& file, const Metadata& metadata) {
  std::vector<TensorSource> sources;
  for (const LoadedTensor& tensor : file.tensors) {
    sources.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  }
  return write_safetensors(path, std::move(sources), metadata);
}

}  // namespace leapquant::io
