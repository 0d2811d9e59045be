// SPDX-License-Identifier: Apache-2.0
#include "judge/pool_io.h"

#include <algorithm>

namespace leapquant::judge {
namespace {

template <class T>
T* program_data(const lq_tensor& tensor, int64_t slot, int64_t head) {
  return static_cast<T*>(tensor.data) + slot * tensor.strides[0] + head * tensor.strides[1];
}

CheckpointProgram slot_checkpoint(const lq_pool_tensors& pool, const Geometry& geometry, int64_t slot, int64_t head) {
  auto* factors = program_data<Half>(pool.uq, slot, head);
  return {.codes = program_data<int8_t>(pool.codes, slot, head),
          .key_scale = program_data<float>(pool.s_k, slot, head),
          .value_scale = program_data<float>(pool.s_v, slot, head),
          .key_factor = factors,
          .value_factor = factors + geometry.key_dim,
          .key_factor_row = pool.uq.strides[2],
          .value_factor_row = pool.uq.strides[2]};
}

// Null for a tensor of the other gate.
template <class T>
T* gate_data(const lq_tensor& tensor, int64_t slot, int64_t head) {
  return tensor.data == nullptr ? nullptr : program_data<T>(tensor, slot, head);
}

WindowProgram slot_window(const lq_pool_tensors& pool, int64_t slot, int64_t head) {
  return {.window_key = program_data<Bfloat16>(pool.kbuf, slot, head),
          .window_update = program_data<Bfloat16>(pool.ubuf, slot, head),
          .window_weight = program_data<float>(pool.w, slot, head),
          .window_gate = gate_data<Half>(pool.gbuf, slot, head),
          .log_decay = gate_data<float>(pool.pcum, slot, head),
          .decay = gate_data<float>(pool.p, slot, head)};
}

void copy_checkpoint(const Geometry& geometry, const CheckpointProgram& from, const CheckpointProgram& to) {
  std::copy_n(from.codes, geometry.state_elements(), to.codes);
  std::copy_n(from.key_scale, geometry.key_dim, to.key_scale);
  std::copy_n(from.value_scale, geometry.value_dim, to.value_scale);
  for (int64_t r = 0; r < geometry.rank; ++r) {
    std::copy_n(from.key_factor + r * from.key_factor_row, geometry.key_dim, to.key_factor + r * to.key_factor_row);
    std::copy_n(from.value_factor + r * from.value_factor_row, geometry.value_dim,
                to.value_factor + r * to.value_factor_row);
  }
}

void copy_window(const Geometry& geometry, const WindowProgram& from, const WindowProgram& to) {
  const int64_t window = geometry.window;
  std::copy_n(from.window_key, window * geometry.key_dim, to.window_key);
  std::copy_n(from.window_update, window * geometry.value_dim, to.window_update);
  std::copy_n(from.window_weight, window, to.window_weight);
  if (geometry.gate == Gate::kGdn) {
    *to.decay = *from.decay;
    return;
  }
  std::copy_n(from.window_gate, window * geometry.key_dim, to.window_gate);
  std::copy_n(from.log_decay, geometry.key_dim, to.log_decay);
}

}  // namespace

void write_slot(const lq_pool_tensors& pool, int64_t slot, const FlushInputs& inputs, int64_t item) {
  const Geometry& geometry = inputs.geometry;
  for (int64_t head = 0; head < geometry.num_heads; ++head) {
    copy_checkpoint(geometry, inputs.checkpoint.view().at(item, head), slot_checkpoint(pool, geometry, slot, head));
    copy_window(geometry, inputs.window.view().at(item, head), slot_window(pool, slot, head));
  }
}

void set_counters(const lq_pool_tensors& pool, int64_t slot, int32_t count) {
  std::fill_n(program_data<int32_t>(pool.hcnt, slot, 0), pool.hcnt.shape[1], count);
}

CheckpointTensors read_slots(const lq_pool_tensors& pool, const Geometry& geometry, std::span<const int32_t> slots) {
  CheckpointTensors result(geometry, std::ssize(slots));
  for (int64_t item = 0; item < std::ssize(slots); ++item) {
    for (int64_t head = 0; head < geometry.num_heads; ++head) {
      copy_checkpoint(geometry, slot_checkpoint(pool, geometry, slots[static_cast<size_t>(item)], head),
                      result.view().at(item, head));
    }
  }
  return result;
}

}  // namespace leapquant::judge
