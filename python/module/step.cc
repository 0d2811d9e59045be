// SPDX-License-Identifier: Apache-2.0
//
// What Python calls to step: as functions.cc has it for the flush.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>

#include "contexts.h"
#include "convert.h"
#include "leapquant/leapquant.h"
#include "pool_object.h"

namespace leapquant::python {
namespace {

namespace ffi = tvm::ffi;

// Without a bound, the softplus gate.
lq_step_params to_params(const ffi::Optional<double>& lower_bound) {
  lq_step_params params = LQ_STEP_PARAMS_DEFAULT;
  if (lower_bound.has_value()) {
    params.gate_function = LQ_GATE_BOUNDED;
    params.lower_bound = static_cast<float>(lower_bound.value());
  }
  return params;
}

void step(Array codes, Array s_k, Array s_v, Array u, Array q, Array kbuf, Array ubuf, Array gbuf, Array w, Array pcum,
          Array h, Array qx, Array kx, Array vx, Array a, Array b, Array A_log, Array dt_bias, Array o, Array k_row,
          Array u_row, Array g_row, Array w_new, Array pcum_new, const ffi::Optional<double>& lower_bound) {
  const lq_checkpoint checkpoint = {to_tensor("codes", *codes), to_tensor("s_k", *s_k), to_tensor("s_v", *s_v),
                                    to_tensor("u", *u), to_tensor("q", *q)};
  const lq_window window = {to_tensor("kbuf", *kbuf), to_tensor("ubuf", *ubuf), to_tensor("w", *w),
                            to_tensor("gbuf", *gbuf), to_tensor("pcum", *pcum), {}};
  const lq_tensor entries = to_tensor("h", *h);
  lq_token token{};
  token.qx = to_tensor("qx", *qx);
  token.kx = to_tensor("kx", *kx);
  token.vx = to_tensor("vx", *vx);
  token.a = to_tensor("a", *a);
  token.b = to_tensor("b", *b);
  token.A_log = to_tensor("A_log", *A_log);
  token.dt_bias = to_tensor("dt_bias", *dt_bias);
  const lq_step_result result = {to_tensor("result.o", *o),
                                 to_tensor("result.k_row", *k_row),
                                 to_tensor("result.u_row", *u_row),
                                 to_tensor("result.g_row", *g_row),
                                 to_tensor("result.w_new", *w_new),
                                 to_tensor("result.pcum_new", *pcum_new),
                                 {}};
  const lq_geometry geometry = geometry_of(checkpoint.u);
  const lq_step_params params = to_params(lower_bound);
  const lq_device& device = checkpoint.codes.device;
  check(lq_step(context_for(device), &geometry, &checkpoint, &window, &entries, &token, &params, &result,
                stream_of(device)));
}

lq_token to_token(Array mixed, Array a, Array b, Array A_log, Array dt_bias) {
  lq_token token{};
  token.mixed = to_tensor("mixed", *mixed);
  token.a = to_tensor("a", *a);
  token.b = to_tensor("b", *b);
  token.A_log = to_tensor("A_log", *A_log);
  token.dt_bias = to_tensor("dt_bias", *dt_bias);
  return token;
}

void step_inplace(const PoolRef& pool, Array idx, Array mixed, Array a, Array b, Array A_log, Array dt_bias, Array o,
                  const ffi::Optional<double>& lower_bound) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_token token = to_token(mixed, a, b, A_log, dt_bias);
  const lq_tensor output = to_tensor("o", *o);
  const lq_step_params params = to_params(lower_bound);
  check(lq_step_inplace(pool->get(), &indices, &token, &params, &output, stream_of(pool->device())));
}

void step_flush_inplace(const PoolRef& pool, Array idx, Array mixed, Array a, Array b, Array A_log, Array dt_bias,
                        Array o, Array q0, const ffi::Optional<double>& lower_bound) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_token token = to_token(mixed, a, b, A_log, dt_bias);
  const lq_tensor output = to_tensor("o", *o);
  const lq_tensor start_basis = to_tensor("q0", *q0);
  const lq_step_params params = to_params(lower_bound);
  check(
      lq_step_flush_inplace(pool->get(), &indices, &token, &params, &start_basis, &output, stream_of(pool->device())));
}

}  // namespace
}  // namespace leapquant::python

TVM_FFI_DLL_EXPORT_TYPED_FUNC(step, leapquant::python::step)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(step_inplace, leapquant::python::step_inplace)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(step_flush_inplace, leapquant::python::step_flush_inplace)
