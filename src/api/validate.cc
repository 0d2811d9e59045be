// SPDX-License-Identifier: Apache-2.0
#include "api/validate.h"

#include <fmt/format.h>

#include <span>
#include <string>

#include "api/program_check.h"
#include "api/tensor_check.h"

namespace leapquant::api {
namespace {

constexpr int64_t kLargestIndexCount = (int64_t{1} << 31) - 1;

TensorView check_start_basis(Checker& checker, const lq_tensor& q0, const Geometry& geometry) {
  return checker.tensor("q0", q0, DType::kFloat32, {geometry.value_dim, geometry.rank}, 0);
}

}  // namespace

Result<Geometry> to_geometry(const lq_geometry* geometry) {
  if (geometry == nullptr) return invalid_argument("geometry: expected a geometry, got NULL");
  const Geometry result{.gate = static_cast<Gate>(geometry->gate),
                        .num_heads = geometry->num_heads,
                        .num_key_heads = geometry->num_key_heads,
                        .value_dim = geometry->value_dim,
                        .key_dim = geometry->key_dim,
                        .window = geometry->window,
                        .rank = geometry->rank,
                        .code_bits = geometry->code_bits};
  LQ_RETURN_IF_ERROR(check_geometry(result));
  return result;
}

lq_tensor to_tensor(const TensorView& view) {
  lq_tensor tensor{};
  tensor.data = view.data;
  tensor.dtype = static_cast<lq_dtype>(view.dtype);
  if (view.dtype == DType::kNone) return tensor;
  tensor.device = {static_cast<lq_device_type>(view.device.type), view.device.index};
  tensor.ndim = view.ndim;
  for (int d = 0; d < view.ndim; ++d) {
    tensor.shape[d] = view.shape[d];
    tensor.strides[d] = view.strides[d];
  }
  return tensor;
}

Result<FlushPlan> plan_flush(const Backend& backend, const FlushRequest& request) {
  const Result<Geometry> geometry = to_geometry(request.geometry);
  if (!geometry.ok()) return geometry.status();
  LQ_RETURN_IF_ERROR(backend.supports(geometry.value()));
  if (request.checkpoint == nullptr || request.window == nullptr || request.start_basis == nullptr ||
      request.result == nullptr) {
    return invalid_argument("flush: expected checkpoint, window, q0 and result, got NULL for one of them");
  }
  if ((request.flags & ~uint32_t{LQ_FLUSH_CHECK_FINITE}) != 0) {
    return invalid_argument(fmt::format("flush: unknown flags {:#x}", request.flags));
  }
  const Result<int64_t> batch = batch_of(request.checkpoint->codes);
  if (!batch.ok()) return batch.status();

  const Device device = backend.state().device;
  Checker inputs(device);
  Checker results(device, "result.");
  FlushPlan plan{.geometry = geometry.value(),
                 .batch = batch.value(),
                 .source = check_checkpoint(inputs, *request.checkpoint, geometry.value(), batch.value(), true),
                 .target = check_checkpoint(results, *request.result, geometry.value(), batch.value(), false),
                 .window = check_window(inputs, *request.window, geometry.value(), batch.value()),
                 .start_basis = nullptr,
                 .in_place = false,
                 .due = {}};
  plan.start_basis = static_cast<const float*>(check_start_basis(inputs, *request.start_basis, geometry.value()).data);
  LQ_RETURN_IF_ERROR(inputs.status());
  LQ_RETURN_IF_ERROR(results.status());
  LQ_RETURN_IF_ERROR(check_results(inputs.seen(), results.seen()));
  return plan;
}

Result<PoolStorage> to_storage(const Geometry& geometry, Layout layout, int64_t num_slots,
                               const lq_pool_tensors& tensors, Device device) {
  const Result<PoolSizes> sizes = pool_sizes(geometry, layout, num_slots);
  if (!sizes.ok()) return sizes.status();
  PoolStorage storage = storage_shapes(geometry, sizes.value(), num_slots, device);
  const lq_tensor* given[] = {&tensors.raw,  &tensors.kbuf, &tensors.ubuf, &tensors.w,
                              &tensors.gbuf, &tensors.pcum, &tensors.p,    &tensors.hcnt};
  size_t next = 0;
  Checker checker(device);
  for_each_tensor(storage, [&](const char* name, TensorView& member) {
    const lq_tensor& tensor = *given[next++];
    if (member.dtype == DType::kNone) {
      checker.absent(name, tensor, geometry.gate);
    } else if (&member == &storage.decay) {
      member = checker.numbers(name, tensor, member.dtype, {num_slots, geometry.num_heads}, 0);
    } else {
      member = checker.tensor(name, tensor, member.dtype, member.extents(), 0);
    }
  });
  LQ_RETURN_IF_ERROR(checker.status());
  const std::span<const Named> seen = checker.seen();
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) LQ_RETURN_IF_ERROR(check_disjoint(seen[i], "", seen[j], ""));
  }
  return storage;
}

Result<TensorView> to_indices(const Pool& pool, const lq_tensor* idx, const char* name) {
  if (idx == nullptr) return invalid_argument(fmt::format("tensor '{}': expected int32 [n], got NULL", name));
  const bool vector = idx->ndim == 1 && idx->shape[0] >= 0 && idx->shape[0] <= kLargestIndexCount;
  if (!vector) {
    return invalid_argument(
        fmt::format("tensor '{}': expected int32 [n] with n between 0 and {}, got {}", name, kLargestIndexCount,
                    idx->ndim == 1 ? fmt::format("[{}]", idx->shape[0]) : fmt::format("{} dimensions", idx->ndim)));
  }
  Checker checker(pool.backend().state().device);
  const TensorView view = checker.tensor(name, *idx, DType::kInt32, {idx->shape[0]}, 0);
  LQ_RETURN_IF_ERROR(checker.status());
  LQ_RETURN_IF_ERROR(check_outside_pool(pool, {name, view}));
  return view;
}

Status check_outside_pool(const Pool& pool, const Named& tensor) {
  Status disjoint;
  for_each_tensor(pool.storage(), [&](const char* name, const TensorView& member) {
    if (disjoint.ok()) disjoint = check_disjoint(tensor, "", {name, member}, "pool.");
  });
  return disjoint;
}

Result<TensorView> to_start_basis(const Pool& pool, const lq_tensor* start_basis) {
  if (start_basis == nullptr) return invalid_argument("tensor 'q0': expected a tensor, got NULL");
  Checker checker(pool.backend().state().device);
  const TensorView basis = check_start_basis(checker, *start_basis, pool.geometry());
  LQ_RETURN_IF_ERROR(checker.status());
  LQ_RETURN_IF_ERROR(check_outside_pool(pool, {"q0", basis}));
  return basis;
}

Result<FlushPlan> plan_flush_inplace(const Pool& pool, const lq_tensor* idx, const lq_tensor* start_basis) {
  const Result<TensorView> indices = to_indices(pool, idx);
  if (!indices.ok()) return indices.status();
  const Result<TensorView> basis = to_start_basis(pool, start_basis);
  if (!basis.ok()) return basis.status();
  return pool.flush_plan(static_cast<const int32_t*>(indices.value().data), indices.value().shape[0],
                         static_cast<const float*>(basis.value().data));
}

}  // namespace leapquant::api
