// SPDX-License-Identifier: Apache-2.0
#include "api/program_check.h"

#include <fmt/format.h>

namespace leapquant::api {
namespace {

constexpr int64_t kLargestBatch = int64_t{1} << 24;

}  // namespace

CheckpointView check_checkpoint(Checker& checker, const lq_checkpoint& checkpoint, const Geometry& geometry,
                                int64_t batch, bool strided_allowed) {
  const int64_t h = geometry.num_heads;
  const int inner = strided_allowed ? 2 : 0;
  const int factor_inner = strided_allowed ? 3 : 0;
  const TensorView codes =
      checker.tensor("codes", checkpoint.codes, DType::kInt8, {batch, h, geometry.value_dim, geometry.key_dim}, inner);
  const TensorView s_k = checker.tensor("s_k", checkpoint.s_k, DType::kFloat32, {batch, h, geometry.key_dim}, inner);
  const TensorView s_v = checker.tensor("s_v", checkpoint.s_v, DType::kFloat32, {batch, h, geometry.value_dim}, inner);
  const TensorView u =
      checker.tensor("u", checkpoint.u, DType::kFloat16, {batch, h, geometry.rank, geometry.key_dim}, factor_inner);
  const TensorView q =
      checker.tensor("q", checkpoint.q, DType::kFloat16, {batch, h, geometry.rank, geometry.value_dim}, factor_inner);
  return {.codes = strided<int8_t>(codes),
          .key_scale = strided<float>(s_k),
          .value_scale = strided<float>(s_v),
          .key_factor = strided<Half>(u),
          .value_factor = strided<Half>(q),
          .key_factor_row = u.strides[2],
          .value_factor_row = q.strides[2]};
}

WindowView check_window(Checker& checker, const lq_window& window, const Geometry& geometry, int64_t batch) {
  const int64_t h = geometry.num_heads;
  const int64_t l = geometry.window;
  WindowView view{.window_key = strided<Bfloat16>(
                      checker.tensor("kbuf", window.kbuf, DType::kBfloat16, {batch, h, l, geometry.key_dim}, 2)),
                  .window_update = strided<Bfloat16>(
                      checker.tensor("ubuf", window.ubuf, DType::kBfloat16, {batch, h, l, geometry.value_dim}, 2)),
                  .window_weight = strided<float>(checker.tensor("w", window.w, DType::kFloat32, {batch, h, l}, 2)),
                  .window_gate = {},
                  .log_decay = {},
                  .decay = {}};
  if (geometry.gate == Gate::kKda) {
    view.window_gate =
        strided<Half>(checker.tensor("gbuf", window.gbuf, DType::kFloat16, {batch, h, l, geometry.key_dim}, 2));
    view.log_decay =
        strided<float>(checker.tensor("pcum", window.pcum, DType::kFloat32, {batch, h, geometry.key_dim}, 2));
    checker.absent("p", window.p, geometry.gate);
  } else {
    view.decay = strided<float>(checker.numbers("p", window.p, DType::kFloat32, {batch, h}, 2));
    checker.absent("gbuf", window.gbuf, geometry.gate);
    checker.absent("pcum", window.pcum, geometry.gate);
  }
  return view;
}

Status check_entry_counts(const char* name, const char* expectation, Strided<const int32_t> counts, int64_t batch,
                          const Geometry& geometry, const Device& device) {
  if (device.type != DeviceType::kCpu) return {};
  const int32_t most = geometry.window - 1;
  for (int64_t item = 0; item < batch; ++item) {
    for (int64_t head = 0; head < geometry.num_heads; ++head) {
      const int32_t count = *counts.at(item, head);
      if (count >= 0 && count <= most) continue;
      return invalid_argument(fmt::format("tensor '{}': {}, got {} at batch {}, head {}", name,
                                          fmt::format(fmt::runtime(expectation), most), count, item, head));
    }
  }
  return {};
}

Result<int64_t> batch_of(const lq_tensor& codes) {
  if (codes.dtype == LQ_DTYPE_NONE || codes.ndim < 1 || codes.ndim > LQ_MAX_DIMS) {
    return invalid_argument("tensor 'codes': expected int8 [batch, heads, value_dim, key_dim], got no such tensor");
  }
  if (codes.shape[0] < 1 || codes.shape[0] > kLargestBatch) {
    return invalid_argument(
        fmt::format("tensor 'codes': expected a batch between 1 and {}, got {}", kLargestBatch, codes.shape[0]));
  }
  return codes.shape[0];
}

Status check_results(std::span<const Named> inputs, std::span<const Named> results) {
  for (size_t i = 0; i < results.size(); ++i) {
    for (const Named& input : inputs) LQ_RETURN_IF_ERROR(check_disjoint(results[i], "result.", input, ""));
    for (size_t j = 0; j < i; ++j) LQ_RETURN_IF_ERROR(check_disjoint(results[i], "result.", results[j], "result."));
  }
  return {};
}

}  // namespace leapquant::api
