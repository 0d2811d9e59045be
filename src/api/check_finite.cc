// SPDX-License-Identifier: Apache-2.0
//
// The opt-in search for NaN and Inf in the inputs of a functional flush.
#include <fmt/format.h>

#include <cmath>

#include "api/validate.h"

namespace leapquant::api {
namespace {

float widen(float value) { return value; }
float widen(Half value) { return to_float(value); }
float widen(Bfloat16 value) { return to_float(value); }

// The first non-finite value of `rows` rows of `width` elements, `row_stride` apart.
template <class T>
Status check_rows(const char* name, const std::string& program, const T* values, int64_t rows, int64_t width,
                  int64_t row_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const float value = widen(values[row * row_stride + i]);
      if (std::isfinite(value)) continue;
      return invalid_argument(fmt::format("tensor '{}': expected finite values, got {} at {}row {}, element {}", name,
                                          value, program, row, i));
    }
  }
  return {};
}

template <class T>
Status check_block(const char* name, const std::string& program, const T* values, int64_t rows, int64_t width) {
  return check_rows(name, program, values, rows, width, width);
}

Status check_checkpoint(const Geometry& geometry, const std::string& place, const CheckpointProgram& checkpoint) {
  LQ_RETURN_IF_ERROR(check_block("s_k", place, checkpoint.key_scale, 1, geometry.key_dim));
  LQ_RETURN_IF_ERROR(check_block("s_v", place, checkpoint.value_scale, 1, geometry.value_dim));
  LQ_RETURN_IF_ERROR(
      check_rows("u", place, checkpoint.key_factor, geometry.rank, geometry.key_dim, checkpoint.key_factor_row));
  return check_rows("q", place, checkpoint.value_factor, geometry.rank, geometry.value_dim,
                    checkpoint.value_factor_row);
}

Status check_window(const Geometry& geometry, const std::string& place, const WindowProgram& window) {
  LQ_RETURN_IF_ERROR(check_block("kbuf", place, window.window_key, geometry.window, geometry.key_dim));
  LQ_RETURN_IF_ERROR(check_block("ubuf", place, window.window_update, geometry.window, geometry.value_dim));
  LQ_RETURN_IF_ERROR(check_block("w", place, window.window_weight, 1, geometry.window));
  if (geometry.gate == Gate::kGdn) return check_block("p", place, window.decay, 1, 1);
  LQ_RETURN_IF_ERROR(check_block("gbuf", place, window.window_gate, geometry.window, geometry.key_dim));
  return check_block("pcum", place, window.log_decay, 1, geometry.key_dim);
}

}  // namespace

Status check_finite(const FlushPlan& plan) {
  const Geometry& geometry = plan.geometry;
  LQ_RETURN_IF_ERROR(check_block("q0", "", plan.start_basis, geometry.value_dim, geometry.rank));
  for (int64_t item = 0; item < plan.batch; ++item) {
    for (int64_t head = 0; head < geometry.num_heads; ++head) {
      const std::string place = fmt::format("batch {}, head {}, ", item, head);
      LQ_RETURN_IF_ERROR(check_checkpoint(geometry, place, plan.source.at(item, head)));
      LQ_RETURN_IF_ERROR(check_window(geometry, place, plan.window.at(item, head)));
    }
  }
  return {};
}

}  // namespace leapquant::api
