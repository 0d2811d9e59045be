// SPDX-License-Identifier: Apache-2.0
#include "judge/step_tensors.h"

namespace leapquant::judge {
namespace {

size_t elements(const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return static_cast<size_t>(batch * geometry.num_heads * program_elements);
}

size_t key_elements(const Geometry& geometry, int64_t batch) {
  return static_cast<size_t>(batch * geometry.num_key_heads * geometry.key_dim);
}

// The elements of a tensor that only one gate has.
size_t elements_of(Gate gate, const Geometry& geometry, int64_t batch, int64_t program_elements) {
  return geometry.gate == gate ? elements(geometry, batch, program_elements) : 0;
}

template <class T>
T* row_of(std::vector<T>& tensor, int64_t n, int64_t program_elements) {
  return tensor.empty() ? nullptr : tensor.data() + n * program_elements;
}

}  // namespace

TokenTensors::TokenTensors(const Geometry& g, int64_t batch)
    : geometry(g),
      qx(key_elements(g, batch)),
      kx(key_elements(g, batch)),
      vx(elements(g, batch, g.value_dim)),
      a(elements(g, batch, g.gate_channels())),
      b(elements(g, batch, 1)),
      A_log(elements(g, 1, 1)),
      dt_bias(elements(g, 1, g.gate_channels())),
      log_gate(elements(g, batch, g.gate_channels())) {}

TokenView TokenTensors::view() const {
  const auto read_only = [this](const auto& tensor, int64_t program_elements) {
    const auto view = program_strided(tensor, geometry, program_elements);
    return Strided<const std::remove_pointer_t<decltype(view.base)>>{view.base, view.item_stride, view.head_stride};
  };
  const int64_t channels = geometry.gate_channels();
  const int64_t key_item = geometry.num_key_heads * int64_t{geometry.key_dim};
  return {.query = {qx.data(), key_item, geometry.key_dim},
          .key = {kx.data(), key_item, geometry.key_dim},
          .value = read_only(vx, geometry.value_dim),
          .beta_input = read_only(b, 1),
          .gate_input = read_only(a, channels),
          .log_rate = {A_log.data(), 0, 1},
          .gate_bias = {dt_bias.data(), 0, channels},
          .log_gate = read_only(log_gate, channels),
          .group_size = geometry.group_size()};
}

StepTensors::StepTensors(const Geometry& g, int64_t batch)
    : geometry(g),
      o(elements(g, batch, g.value_dim)),
      k_row(elements(g, batch, g.key_dim)),
      u_row(elements(g, batch, g.value_dim)),
      g_row(elements_of(Gate::kKda, g, batch, g.key_dim)),
      w_new(elements(g, batch, g.window)),
      pcum_new(elements_of(Gate::kKda, g, batch, g.key_dim)),
      p_new(elements_of(Gate::kGdn, g, batch, 1)) {}

StepRows StepTensors::rows(int64_t n) {
  return {row_of(o, n, geometry.value_dim),      row_of(k_row, n, geometry.key_dim),
          row_of(u_row, n, geometry.value_dim),  row_of(g_row, n, geometry.key_dim),
          row_of(pcum_new, n, geometry.key_dim), nullptr};
}

WindowProgram StepTensors::weights(int64_t n) {
  WindowProgram window{};
  window.window_weight = row_of(w_new, n, geometry.window);
  window.decay = row_of(p_new, n, 1);
  return window;
}

}  // namespace leapquant::judge
