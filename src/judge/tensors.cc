// SPDX-License-Identifier: Apache-2.0
#include "judge/tensors.h"

namespace leapquant::judge {
namespace {

// Views never say const, whoever reads through them (see core/program_view.h).
template <class T>
Strided<T> strided(const std::vector<T>& tensor, const Geometry& geometry, int64_t program_elements) {
  return {const_cast<T*>(tensor.data()), program_elements * geometry.num_heads, program_elements};
}

size_t elements(const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return static_cast<size_t>(batch * geometry.num_heads * program_elements);
}

// The same for a tensor that only one gate has.
size_t elements_of(Gate gate, const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return geometry.gate == gate ? elements(geometry, batch, program_elements) : 0;
}

template <class T>
Strided<T> strided_of(Gate gate, const std::vector<T>& tensor, const Geometry& geometry, int64_t program_elements) {
  return geometry.gate == gate ? strided(tensor, geometry, program_elements) : Strided<T>{};
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
  return {.codes = strided(codes, geometry, geometry.state_elements()),
          .key_scale = strided(s_k, geometry, geometry.key_dim),
          .value_scale = strided(s_v, geometry, geometry.value_dim),
          .key_factor = strided(u, geometry, int64_t{geometry.rank} * geometry.key_dim),
          .value_factor = strided(q, geometry, int64_t{geometry.rank} * geometry.value_dim),
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
  return {.window_key = strided(kbuf, geometry, int64_t{geometry.window} * geometry.key_dim),
          .window_update = strided(ubuf, geometry, int64_t{geometry.window} * geometry.value_dim),
          .window_weight = strided(w, geometry, geometry.window),
          .window_gate = strided_of(Gate::kKda, gbuf, geometry, int64_t{geometry.window} * geometry.key_dim),
          .log_decay = strided_of(Gate::kKda, pcum, geometry, geometry.key_dim),
          .decay = strided_of(Gate::kGdn, p, geometry, 1)};
}

}  // namespace leapquant::judge
