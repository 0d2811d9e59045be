// SPDX-License-Identifier: Apache-2.0
#include "convert.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <string>

namespace leapquant::python {
namespace {

const char* exception_of(lq_status status) {
  switch (status) {
    case LQ_INVALID_ARGUMENT:
    case LQ_UNSUPPORTED:
      return "ValueError";
    case LQ_OUT_OF_MEMORY:
      return "MemoryError";
    default:
      return "RuntimeError";
  }
}

lq_dtype dtype_of(const DLDataType& dtype) {
  if (dtype.lanes != 1) return LQ_DTYPE_NONE;
  if (dtype.bits == 8 && dtype.code == kDLInt) return LQ_INT8;
  if (dtype.bits == 16 && dtype.code == kDLFloat) return LQ_FLOAT16;
  if (dtype.bits == 16 && (dtype.code == kDLBfloat || dtype.code == kDLUInt)) return LQ_BFLOAT16;
  if (dtype.bits == 32 && dtype.code == kDLInt) return LQ_INT32;
  if (dtype.bits == 32 && dtype.code == kDLFloat) return LQ_FLOAT32;
  return LQ_DTYPE_NONE;
}

}  // namespace

void check(lq_status status) {
  if (status == LQ_OK) return;
  // Without a C++ backtrace: what is wrong stands in the text.
  throw tvm::ffi::Error(exception_of(status), lq_last_error(), "");
}

lq_device to_device(const DLDevice& device) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:  // pinned host memory
      return {LQ_DEVICE_CPU, 0};
    case kDLCUDA:
      return {LQ_DEVICE_CUDA, device.device_id};
    default:
      throw tvm::ffi::Error("ValueError",
                            "expected arrays on cpu or cuda, got DLPack device type " +
                                std::to_string(static_cast<int>(device.device_type)),
                            "");
  }
}

lq_tensor to_tensor(const char* name, const DLTensor& array) {
  const lq_dtype dtype = dtype_of(array.dtype);
  if (dtype == LQ_DTYPE_NONE) {
    throw tvm::ffi::Error("TypeError",
                          std::string("tensor '") + name +
                              "': expected int8, int32, float16, bfloat16 or float32, got " +
                              std::string(tvm::ffi::DLDataTypeToString(array.dtype)),
                          "");
  }
  void* const data = static_cast<char*>(array.data) + array.byte_offset;
  lq_tensor tensor = lq_tensor_contiguous(data, dtype, to_device(array.device), array.ndim, array.shape);
  // An exporter that leaves the strides out means a contiguous array. Too many dimensions are for the library to
  // refuse.
  const bool strided = array.strides != nullptr && array.ndim <= LQ_MAX_DIMS;
  for (int32_t d = 0; strided && d < array.ndim; ++d) tensor.strides[d] = array.strides[d];
  return tensor;
}

lq_tensor to_tensor(const char* name, const OptionalArray& array) {
  return array.has_value() ? to_tensor(name, *array.value()) : lq_tensor{};
}

lq_checkpoint to_checkpoint(Array codes, Array s_k, Array s_v, Array u, Array q) {
  return {to_tensor("codes", *codes), to_tensor("s_k", *s_k), to_tensor("s_v", *s_v), to_tensor("u", *u),
          to_tensor("q", *q)};
}

lq_window to_window(Array kbuf, Array ubuf, Array w, const OptionalArray& gbuf, const OptionalArray& pcum,
                    const OptionalArray& p) {
  lq_window window = {to_tensor("kbuf", *kbuf), to_tensor("ubuf", *ubuf), to_tensor("w", *w),
                      to_tensor("gbuf", gbuf),  to_tensor("pcum", pcum),  to_tensor("p", p)};
  if (window.p.ndim == 3 && window.p.shape[2] == 1) window.p.ndim = 2;
  return window;
}

lq_gate to_gate(const tvm::ffi::String& name) {
  if (name == "kda") return LQ_GATE_KDA;
  if (name == "gdn") return LQ_GATE_GDN;
  throw tvm::ffi::Error("ValueError", "gate: expected 'kda' or 'gdn', got '" + std::string(name) + "'", "");
}

int32_t narrow(int64_t value) { return static_cast<int32_t>(std::clamp<int64_t>(value, INT32_MIN, INT32_MAX)); }

lq_geometry geometry_with(lq_gate gate, int64_t num_heads, int64_t num_key_heads, int64_t rank) {
  lq_geometry geometry = lq_geometry_default(gate);
  geometry.num_heads = narrow(num_heads);
  geometry.num_key_heads = narrow(num_key_heads);
  geometry.rank = narrow(rank);
  return geometry;
}

int64_t extent(const lq_tensor& tensor, int32_t ndim, int32_t dimension, int64_t otherwise) {
  return tensor.ndim == ndim ? tensor.shape[dimension] : otherwise;
}

lq_geometry geometry_of(lq_gate gate, const lq_tensor& u) {
  const lq_geometry usual = lq_geometry_default(gate);
  const int64_t heads = extent(u, 4, 1, usual.num_heads);
  return geometry_with(gate, heads, heads, extent(u, 4, 2, usual.rank));
}

}  // namespace leapquant::python
