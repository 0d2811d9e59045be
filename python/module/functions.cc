// SPDX-License-Identifier: Apache-2.0
//
// What Python calls: the C interface as tvm-ffi functions. Arrays come as DLPack tensors in the order of the format;
// every check of them is the library's.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/container/tuple.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "contexts.h"
#include "convert.h"
#include "leapquant/leapquant.h"
#include "pool_object.h"

namespace leapquant::python {
namespace {

namespace ffi = tvm::ffi;

void flush(Array codes, Array s_k, Array s_v, Array u, Array q, Array kbuf, Array ubuf, Array gbuf, Array w, Array pcum,
           Array q0, Array new_codes, Array new_s_k, Array new_s_v, Array new_u, Array new_q, bool check_finite) {
  const lq_checkpoint checkpoint = {to_tensor("codes", *codes), to_tensor("s_k", *s_k), to_tensor("s_v", *s_v),
                                    to_tensor("u", *u), to_tensor("q", *q)};
  const lq_window window = {to_tensor("kbuf", *kbuf), to_tensor("ubuf", *ubuf), to_tensor("w", *w),
                            to_tensor("gbuf", *gbuf), to_tensor("pcum", *pcum), {}};
  const lq_checkpoint result = {to_tensor("result.codes", *new_codes), to_tensor("result.s_k", *new_s_k),
                                to_tensor("result.s_v", *new_s_v), to_tensor("result.u", *new_u),
                                to_tensor("result.q", *new_q)};
  const lq_tensor start_basis = to_tensor("q0", *q0);
  const lq_geometry geometry = geometry_of(checkpoint.u);
  const lq_device& device = checkpoint.codes.device;
  check(lq_flush(context_for(device), &geometry, &checkpoint, &window, &start_basis, &result,
                 check_finite ? LQ_FLUSH_CHECK_FINITE : LQ_FLUSH_DEFAULT, stream_of(device)));
}

// (heads, value_dim, key_dim, window, rank) of the default geometry.
ffi::Shape default_geometry() {
  const lq_geometry usual = lq_geometry_default(LQ_GATE_KDA);
  return {usual.num_heads, usual.value_dim, usual.key_dim, usual.window, usual.rank};
}

lq_layout to_layout(const ffi::String& layout) {
  if (layout == "padded") return LQ_LAYOUT_PADDED;
  if (layout == "compact") return LQ_LAYOUT_COMPACT;
  throw ffi::Error("ValueError", "layout: expected 'padded' or 'compact', got '" + std::string(layout) + "'", "");
}

// Elements of a pool's `raw`; refuses geometries and sizes that cannot be.
int64_t pool_raw_elements(int64_t num_slots, int64_t num_heads, int64_t rank, const ffi::String& layout) {
  const lq_geometry geometry = kda_geometry(num_heads, rank);
  lq_pool_sizes sizes{};
  check(lq_pool_size(&geometry, to_layout(layout), num_slots, &sizes));
  return sizes.raw_bytes / static_cast<int64_t>(sizeof(float));
}

// A pool over the caller's arrays, contents as they are.
PoolRef pool_create(Array raw, Array kbuf, Array ubuf, Array w, Array gbuf, Array pcum, Array hcnt, int64_t rank,
                    const ffi::String& layout) {
  lq_pool_tensors storage{};
  storage.raw = to_tensor("raw", *raw);
  storage.kbuf = to_tensor("kbuf", *kbuf);
  storage.ubuf = to_tensor("ubuf", *ubuf);
  storage.w = to_tensor("w", *w);
  storage.gbuf = to_tensor("gbuf", *gbuf);
  storage.pcum = to_tensor("pcum", *pcum);
  storage.hcnt = to_tensor("hcnt", *hcnt);
  const lq_pool_options options = {kda_geometry(extent(storage.hcnt, 2, 1, 0), rank), to_layout(layout),
                                   extent(storage.hcnt, 2, 0, 0), &storage, LQ_POOL_KEEP_CONTENTS};
  lq_pool* pool = nullptr;
  check(lq_pool_create(context_for(storage.raw.device), &options, &pool));
  return PoolRef(ffi::make_object<PoolObject>(pool, storage.raw.device));
}

using View =
    ffi::Tuple<int64_t, ffi::Shape, ffi::Shape>;  // bytes from the start of `raw`, extents, strides in elements

// Where the checkpoint's tensors lie in `raw`.
ffi::Map<ffi::String, View> pool_views(const PoolRef& pool) {
  lq_pool_tensors tensors{};
  check(lq_pool_view(pool->get(), &tensors));
  const auto view = [&](const lq_tensor& tensor) {
    const auto offset = static_cast<const char*>(tensor.data) - static_cast<const char*>(tensors.raw.data);
    return View(static_cast<int64_t>(offset), ffi::Shape(tensor.shape, tensor.shape + tensor.ndim),
                ffi::Shape(tensor.strides, tensor.strides + tensor.ndim));
  };
  return {
      {"codes", view(tensors.codes)}, {"s_k", view(tensors.s_k)}, {"s_v", view(tensors.s_v)}, {"uq", view(tensors.uq)}};
}

void flush_inplace(const PoolRef& pool, Array idx, Array q0) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_tensor start_basis = to_tensor("q0", *q0);
  check(lq_flush_inplace(pool->get(), &indices, &start_basis, stream_of(pool->device())));
}

void flush_now(const PoolRef& pool, Array idx, Array q0) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_tensor start_basis = to_tensor("q0", *q0);
  check(lq_pool_flush_now(pool->get(), &indices, &start_basis, stream_of(pool->device())));
}

void reset_slots(const PoolRef& pool, Array idx) {
  const lq_tensor indices = to_tensor("idx", *idx);
  check(lq_pool_reset_slots(pool->get(), &indices, stream_of(pool->device())));
}

void copy_slots(const PoolRef& pool, Array src, Array dst) {
  const lq_tensor sources = to_tensor("src", *src);
  const lq_tensor targets = to_tensor("dst", *dst);
  check(lq_pool_copy_slots(pool->get(), &sources, &targets, stream_of(pool->device())));
}

void pool_check_indices(const PoolRef& pool, Array idx) {
  const lq_tensor indices = to_tensor("idx", *idx);
  check(lq_pool_check_indices(pool->get(), &indices, stream_of(pool->device())));
}

// First batch position of each kind of trouble, -1 where there is none; clears it. `hcnt` only brings its stream along.
ffi::Shape pool_errors(const PoolRef& pool, Array /*hcnt*/) {
  lq_pool_errors errors{};
  check(lq_pool_read_errors(pool->get(), stream_of(pool->device()), &errors));
  const int32_t* const first = errors.first_position;
  return {first[LQ_ERROR_INDEX], first[LQ_ERROR_NONFINITE], first[LQ_ERROR_UNFLUSHED], first[LQ_ERROR_COUNTER]};
}

ffi::String version() { return lq_version(); }

}  // namespace
}  // namespace leapquant::python

TVM_FFI_DLL_EXPORT_TYPED_FUNC(version, leapquant::python::version)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(default_geometry, leapquant::python::default_geometry)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(flush, leapquant::python::flush)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(flush_inplace, leapquant::python::flush_inplace)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(flush_now, leapquant::python::flush_now)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(reset_slots, leapquant::python::reset_slots)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(copy_slots, leapquant::python::copy_slots)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool_raw_elements, leapquant::python::pool_raw_elements)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool_create, leapquant::python::pool_create)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool_views, leapquant::python::pool_views)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool_check_indices, leapquant::python::pool_check_indices)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pool_errors, leapquant::python::pool_errors)
