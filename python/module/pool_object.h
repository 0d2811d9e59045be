// SPDX-License-Identifier: Apache-2.0
//
// The library's pool as an object of tvm-ffi, and the stream that a call on it goes to.
#pragma once

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/object.h>

#include <utility>

#include "leapquant/leapquant.h"

namespace leapquant::python {

// Kept by Python beside the arrays that it works on.
class PoolObject : public tvm::ffi::Object {
 public:
  PoolObject(lq_pool* pool, const lq_device& device) : pool_(pool), device_(device) {}
  ~PoolObject() { lq_pool_destroy(pool_); }
  PoolObject(const PoolObject&) = delete;
  PoolObject& operator=(const PoolObject&) = delete;

  lq_pool* get() const { return pool_; }
  const lq_device& device() const { return device_; }

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("leapquant.Pool", PoolObject, tvm::ffi::Object);

 private:
  lq_pool* pool_;
  lq_device device_;
};

class PoolRef : public tvm::ffi::ObjectRef {
 public:
  explicit PoolRef(tvm::ffi::ObjectPtr<PoolObject> object) : ObjectRef(std::move(object)) {}
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NOTNULLABLE(PoolRef, tvm::ffi::ObjectRef, PoolObject);
};

// The stream that the arrays of the running call are used on: their library's current one of the device.
inline void* stream_of(const lq_device& device) {
  return device.type == LQ_DEVICE_CPU ? nullptr : TVMFFIEnvGetStream(kDLCUDA, device.index);
}

}  // namespace leapquant::python
