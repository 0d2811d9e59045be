// SPDX-License-Identifier: Apache-2.0
//
// What Python calls to bring dense states into a pool and out of it: as functions.cc has it for the flush.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <string>

#include "convert.h"
#include "leapquant/leapquant.h"
#include "pool_object.h"

namespace leapquant::python {
namespace {

namespace ffi = tvm::ffi;

lq_state_order to_order(const ffi::String& order) {
  if (order == "vk") return LQ_STATE_VK;
  if (order == "kv") return LQ_STATE_KV;
  throw ffi::Error("ValueError", "order: expected 'vk' or 'kv', got '" + std::string(order) + "'", "");
}

void import_state(const PoolRef& pool, Array idx, Array state, const OptionalArray& offset, Array q0,
                  const ffi::String& order) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_tensor states = to_tensor("state", *state);
  const lq_tensor counters = offset.has_value() ? to_tensor("offset", *offset.value()) : lq_tensor{};
  const lq_tensor start_basis = to_tensor("q0", *q0);
  check(lq_pool_import_state(pool->get(), &indices, &states, to_order(order), offset.has_value() ? &counters : nullptr,
                             &start_basis, stream_of(pool->device())));
}

void export_state(const PoolRef& pool, Array idx, Array state, const ffi::String& order) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_tensor states = to_tensor("state", *state);
  check(lq_pool_export_state(pool->get(), &indices, &states, to_order(order), stream_of(pool->device())));
}

}  // namespace
}  // namespace leapquant::python

TVM_FFI_DLL_EXPORT_TYPED_FUNC(import_state, leapquant::python::import_state)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(export_state, leapquant::python::export_state)
