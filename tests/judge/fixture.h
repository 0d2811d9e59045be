// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the judge share.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "judge/families.h"
#include "judge/judge.h"
#include "judge/parallel.h"
#include "ref/flush.h"

namespace leapquant::judge {

inline Geometry geometry_of(int32_t heads, int32_t rank = 4) {
  Geometry geometry;
  geometry.num_heads = heads;
  geometry.num_key_heads = heads;
  geometry.rank = rank;
  return geometry;
}

inline FlushInputs draw(Family family, int64_t batch, int32_t heads, int32_t rank = 4, uint64_t seed = 3) {
  Result<FlushInputs> inputs = make_inputs({geometry_of(heads, rank), family, batch, seed, 2, ""});
  EXPECT_TRUE(inputs.ok()) << inputs.status().message();
  return std::move(inputs.value());
}

template <class Real>
CheckpointTensors reference_flush(const FlushInputs& inputs) {
  CheckpointTensors result(inputs.geometry, inputs.batch);
  const int64_t heads = inputs.geometry.num_heads;
  parallel_for(inputs.programs(), 2, [&](int64_t n) {
    ref::flush_program<Real>(inputs.geometry, inputs.checkpoint.view().at(n / heads, n % heads),
                             inputs.window.view().at(n / heads, n % heads), inputs.q0.data(),
                             result.view().at(n / heads, n % heads));
  });
  return result;
}

template <class T>
void append_bytes(const std::vector<T>& values, int64_t count, std::vector<uint8_t>& bytes) {
  const auto* const begin = reinterpret_cast<const uint8_t*>(values.data());
  bytes.insert(bytes.end(), begin, begin + static_cast<size_t>(count) * sizeof(T));
}

// The bytes of the first `programs` programs, all tensors.
inline std::vector<uint8_t> program_bytes(const FlushInputs& inputs, int64_t programs) {
  std::vector<uint8_t> bytes;
  const auto append = [&](const auto& tensor) {
    append_bytes(tensor, programs * (static_cast<int64_t>(tensor.size()) / inputs.programs()), bytes);
  };
  append(inputs.checkpoint.codes);
  append(inputs.checkpoint.s_k);
  append(inputs.checkpoint.s_v);
  append(inputs.checkpoint.u);
  append(inputs.checkpoint.q);
  append(inputs.window.kbuf);
  append(inputs.window.ubuf);
  append(inputs.window.w);
  append(inputs.window.gbuf);
  append(inputs.window.pcum);
  return bytes;
}

inline std::vector<double> rebuilt(const FlushInputs& inputs, int64_t item, int64_t head) {
  return ref::rebuild_state<double>(inputs.geometry, inputs.checkpoint.view().at(item, head),
                                    inputs.window.view().at(item, head));
}

}  // namespace leapquant::judge
