// SPDX-License-Identifier: Apache-2.0
#include "judge/step_tensors.h"

namespace leapquant::judge {
namespace {

size_t elements(const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return static_cast<size_t>(batch * geometry.num_heads * program_elements);
}

}  // namespace

TokenTensors::TokenTensors(const Geometry& g, int64_t batch)
    : geometry(g),
      qx(elements(g, batch, g.key_dim)),
      kx(elements(g, batch, g.key_dim)),
      vx(elements(g, batch, g.value_dim)),
      a(elements(g, batch, g.key_dim)),
      b(elements(g, batch, 1)),
      A_log(elements(g, 1, 1)),
      dt_bias(elements(g, 1, g.key_dim)),
      log_gate(elements(g, batch, g.key_dim)) {}

TokenView TokenTensors::view() const {
  const auto read_only = [this](const auto& tensor, int64_t program_elements) {
    const auto view = program_strided(tensor, geometry, program_elements);
    return Strided<const std::remove_pointer_t<decltype(view.base)>>{view.base, view.item_stride, view.head_stride};
  };
  return {.query = read_only(qx, geometry.key_dim),
          .key = read_only(kx, geometry.key_dim),
          .value = read_only(vx, geometry.value_dim),
          .beta_input = read_only(b, 1),
          .gate_input = read_only(a, geometry.key_dim),
          .log_rate = {A_log.data(), 0, 1},
          .gate_bias = {dt_bias.data(), 0, geometry.key_dim},
          .log_gate = read_only(log_gate, geometry.key_dim)};
}

StepTensors::StepTensors(const Geometry& g, int64_t batch)
    : geometry(g),
      o(elements(g, batch, g.value_dim)),
      k_row(elements(g, batch, g.key_dim)),
      u_row(elements(g, batch, g.value_dim)),
      g_row(elements(g, batch, g.key_dim)),
      w_new(elements(g, batch, g.window)),
      pcum_new(elements(g, batch, g.key_dim)) {}

StepRows StepTensors::rows(int64_t n) {
  return {o.data() + n * geometry.value_dim, k_row.data() + n * geometry.key_dim, u_row.data() + n * geometry.value_dim,
          g_row.data() + n * geometry.key_dim, pcum_new.data() + n * geometry.key_dim};
}

}  // namespace leapquant::judge
