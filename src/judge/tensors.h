// SPDX-License-Identifier: Apache-2.0
//
// Owning, contiguous tensors in the layout of the functional form, under their wire names.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "core/geometry.h"
#include "core/numerics.h"
#include "core/program_view.h"

namespace leapquant::judge {

// The programs of a tensor [B, H, ...]. Views never say const, whoever reads through them (see core/program_view.h).
template <class T>
Strided<T> program_strided(const std::vector<T>& tensor, const Geometry& geometry, int64_t program_elements) {
  return {const_cast<T*>(tensor.data()), program_elements * geometry.num_heads, program_elements};
}

// Calls `visit` with each of a struct's tensors.
template <class Tensors, class Visit>
void for_each_tensor(Tensors& tensors, const Visit& visit) {
  std::apply([&](auto&... tensor) { (visit(tensor), ...); }, tensors.all());
}

// Checkpoints of [batch, H] programs.
struct CheckpointTensors {
  CheckpointTensors() = default;
  CheckpointTensors(const Geometry& geometry, int64_t batch);
  CheckpointView view() const;
  auto all() { return std::tie(codes, s_k, s_v, u, q); }
  auto all() const { return std::tie(codes, s_k, s_v, u, q); }

  Geometry geometry;
  std::vector<int8_t> codes;  // [B, H, V, K]
  std::vector<float> s_k;     // [B, H, K]
  std::vector<float> s_v;     // [B, H, V]
  std::vector<Half> u;        // [B, H, R, K]
  std::vector<Half> q;        // [B, H, R, V]
};

// Windows of [batch, H] programs. The tensors of the other gate are empty.
struct WindowTensors {
  WindowTensors() = default;
  WindowTensors(const Geometry& geometry, int64_t batch);
  WindowView view() const;
  auto all() { return std::tie(kbuf, ubuf, w, gbuf, pcum, p); }
  auto all() const { return std::tie(kbuf, ubuf, w, gbuf, pcum, p); }

  Geometry geometry;
  std::vector<Bfloat16> kbuf;  // [B, H, L, K]
  std::vector<Bfloat16> ubuf;  // [B, H, L, V]
  std::vector<float> w;        // [B, H, L]
  std::vector<Half> gbuf;      // [B, H, L, K], KDA
  std::vector<float> pcum;     // [B, H, K], KDA
  std::vector<float> p;        // [B, H], GDN
};

// All that one flush reads.
struct FlushInputs {
  Geometry geometry;
  int64_t batch = 0;
  CheckpointTensors checkpoint;
  WindowTensors window;
  std::vector<float> q0;  // [V, R]

  int64_t programs() const { return batch * geometry.num_heads; }
};

}  // namespace leapquant::judge
