// SPDX-License-Identifier: Apache-2.0
#include "judge/tensors.h"

namespace leapquant::judge {
namespace {

size_t elements(const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return static_cast<size_t>(batch * geometry.num_heads * program_elements);
}

// The same for a tensor that only one gate has.
size_t elements_of(Gate gate, const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return geometry.gate == gate ? elements(geometry, batch, program_elements) : 0;
}

template <class T>
Strided<T> strided_of(Gate gate, const std::vector<T>& tensor, const Geometry& geometry, int64_t program_elements) {
  return geometry.gate == gate ? program_strided(tensor, geometry, program_elements) : Strided<T>{};
}

}  // namespace

CheckpointTensors::CheckpointTensors(const Geometry& g, int64_t batch)
    : geometry(g),
      codes(elements(g, batch, g.state_elements())),
      s_k(elements(g, batch, g.key_dim)),
      s_v(elements(g, batch, g.value_dim)),
      u(elements(g, batch, int64_t{g.rank} * g.key_dim)),
      q(elements(g, batch, int64_t{g.rank} * g.value_dim)) {}

CheckpointView CheckpointTensors::view() const {
  return {.codes = program_strided(codes, geometry, geometry.state_elements()),
          .key_scale = program_strided(s_k, geometry, geometry.key_dim),
          .value_scale = program_strided(s_v, geometry, geometry.value_dim),
          .key_factor = program_strided(u, geometry, int64_t{geometry.rank} * geometry.key_dim),
          .value_factor = program_strided(q, geometry, int64_t{geometry.rank} * geometry.value_dim),
          .key_factor_row = geometry.key_dim,
          .value_factor_row = geometry.value_dim};
}

WindowTensors::WindowTensors(const Geometry& g, int64_t batch)
    : geometry(g),
      kbuf(elements(g, batch, int64_t{g.window} * g.key_dim)),
      ubuf(elements(g, batch, int64_t{g.window} * g.value_dim)),
      w(elements(g, batch, g.window)),
      gbuf(elements_of(Gate::kKda, g, batch, int64_t{g.window} * g.key_dim)),
      pcum(elements_of(Gate::kKda, g, batch, g.key_dim)),
      p(elements_of(Gate::kGdn, g, batch, 1)) {}

WindowView WindowTensors::view() const {
  return {.window_key = program_strided(kbuf, geometry, int64_t{geometry.window} * geometry.key_dim),
          .window_update = program_strided(ubuf, geometry, int64_t{geometry.window} * geometry.value_dim),
          .window_weight = program_strided(w, geometry, geometry.window),
          .window_gate = strided_of(Gate::kKda, gbuf, geometry, int64_t{geometry.window} * geometry.key_dim),
          .log_decay = strided_of(Gate::kKda, pcum, geometry, geometry.key_dim),
          .decay = strided_of(Gate::kGdn, p, geometry, 1)};
}

}  // namespace leapquant::judge
