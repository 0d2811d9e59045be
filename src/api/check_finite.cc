// SPDX-License-Identifier: Apache-2.0
//
// The opt-in search for NaN and Inf in the inputs of a functional flush.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "api/validate.h"

namespace leapquant::api {
namespace {

float widen(float value) { return value; }
float widen(Half value) { return to_float(value); }
float widen(Bfloat16 value) { return to_float(value); }

// Rows of one program's tensor.
struct Rows {
  int64_t count;
  int64_t width;   // elements
  int64_t stride;  // elements from one row to the next

  int64_t elements() const { return count * width; }
  bool dense() const { return count == 1 || stride == width; }
};

Rows dense_rows(int64_t count, int64_t width) { return {count, width, width}; }

struct Found {
  int64_t head;
  int64_t row;
  int64_t element;
  float value;
};

// Looks at copies on the host, of one batch item of one tensor at most, so that one search serves all backends.
class FiniteSearch {
 public:
  FiniteSearch(Backend& backend, void* stream) : backend_(backend), stream_(stream) {}

  // The first non-finite value of `heads` programs of one batch item.
  template <class T>
  Result<std::optional<Found>> find(const Strided<T>& tensor, int64_t item, int64_t heads, const Rows& rows) {
    // What lies together is copied together.
    int64_t run = rows.dense() ? rows.elements() : rows.width;
    if (rows.dense() && tensor.head_stride == rows.elements()) run *= heads;
    for (int64_t first = 0; first < heads * rows.elements(); first += run) {
      const int64_t row = first % rows.elements() / rows.width;
      const T* const start = tensor.at(item, first / rows.elements()) + row * rows.stride;
      const Result<const T*> copied = copy(start, run);
      if (!copied.ok()) return copied.status();
      for (int64_t i = 0; i < run; ++i) {
        const float value = widen(copied.value()[i]);
        if (std::isfinite(value)) continue;
        const int64_t n = first + i;
        return std::optional(Found{n / rows.elements(), n % rows.elements() / rows.width, n % rows.width, value});
      }
    }
    return std::optional<Found>();
  }

 private:
  template <class T>
  Result<const T*> copy(const T* values, int64_t count) {
    const auto bytes = static_cast<size_t>(count) * sizeof(T);
    if (memory_.size() < bytes) memory_.resize(bytes);
    LQ_RETURN_IF_ERROR(backend_.copy_to_host(memory_.data(), values, bytes, stream_));
    return reinterpret_cast<const T*>(memory_.data());
  }

  Backend& backend_;
  void* stream_;
  std::vector<unsigned char> memory_;
};

Status refusal(const char* name, const std::string& program, const Found& found) {
  return invalid_argument(fmt::format("tensor '{}': expected finite values, got {} at {}row {}, element {}", name,
                                      found.value, program, found.row, found.element));
}

Status check_start_basis(FiniteSearch& search, const FlushPlan& plan) {
  const Strided<const float> start_basis = {plan.start_basis, 0, 0};
  const auto found = search.find(start_basis, 0, 1, dense_rows(plan.geometry.value_dim, plan.geometry.rank));
  if (!found.ok()) return found.status();
  return found.value() ? refusal("q0", "", *found.value()) : Status();
}

Status check_item(FiniteSearch& search, const FlushPlan& plan, int64_t item) {
  const Geometry& geometry = plan.geometry;
  const auto check = [&](const char* name, const auto& tensor, const Rows& rows) -> Status {
    const auto found = search.find(tensor, item, geometry.num_heads, rows);
    if (!found.ok()) return found.status();
    if (!found.value()) return {};
    return refusal(name, fmt::format("batch {}, head {}, ", item, found.value()->head), *found.value());
  };
  const CheckpointView& source = plan.source;
  LQ_RETURN_IF_ERROR(check("s_k", source.key_scale, dense_rows(1, geometry.key_dim)));
  LQ_RETURN_IF_ERROR(check("s_v", source.value_scale, dense_rows(1, geometry.value_dim)));
  LQ_RETURN_IF_ERROR(check("u", source.key_factor, {geometry.rank, geometry.key_dim, source.key_factor_row}));
  LQ_RETURN_IF_ERROR(check("q", source.value_factor, {geometry.rank, geometry.value_dim, source.value_factor_row}));
  const WindowView& window = plan.window;
  LQ_RETURN_IF_ERROR(check("kbuf", window.window_key, dense_rows(geometry.window, geometry.key_dim)));
  LQ_RETURN_IF_ERROR(check("ubuf", window.window_update, dense_rows(geometry.window, geometry.value_dim)));
  LQ_RETURN_IF_ERROR(check("w", window.window_weight, dense_rows(1, geometry.window)));
  if (geometry.gate == Gate::kGdn) return check("p", window.decay, dense_rows(1, 1));
  LQ_RETURN_IF_ERROR(check("gbuf", window.window_gate, dense_rows(geometry.window, geometry.key_dim)));
  return check("pcum", window.log_decay, dense_rows(1, geometry.key_dim));
}

}  // namespace

Status check_finite(Backend& backend, const FlushPlan& plan, void* stream) {
  FiniteSearch search(backend, stream);
  LQ_RETURN_IF_ERROR(check_start_basis(search, plan));
  for (int64_t item = 0; item < plan.batch; ++item) LQ_RETURN_IF_ERROR(check_item(search, plan, item));
  return {};
}

}  // namespace leapquant::api
