// SPDX-License-Identifier: Apache-2.0
//
// What Python calls to step, and to step ahead: as functions.cc has it for the flush.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <cstdint>
#include <string>

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

void step(const ffi::String& gate, Array codes, Array s_k, Array s_v, Array u, Array q, Array kbuf, Array ubuf, Array w,
          const OptionalArray& gbuf, const OptionalArray& pcum, const OptionalArray& p, Array h, Array qx, Array kx,
          Array vx, Array a, Array b, Array A_log, Array dt_bias, Array o, Array k_row, Array u_row,
          const OptionalArray& g_row, Array w_new, const OptionalArray& pcum_new, const OptionalArray& p_new,
          const ffi::Optional<double>& lower_bound) {
  const lq_checkpoint checkpoint = to_checkpoint(codes, s_k, s_v, u, q);
  const lq_window window = to_window(kbuf, ubuf, w, gbuf, pcum, p);
  const lq_tensor entries = to_tensor("h", *h);
  lq_token token{};
  token.qx = to_tensor("qx", *qx);
  token.kx = to_tensor("kx", *kx);
  token.vx = to_tensor("vx", *vx);
  token.a = to_tensor("a", *a);
  token.b = to_tensor("b", *b);
  token.A_log = to_tensor("A_log", *A_log);
  token.dt_bias = to_tensor("dt_bias", *dt_bias);
  const lq_step_result result = {to_tensor("result.o", *o),         to_tensor("result.k_row", *k_row),
                                 to_tensor("result.u_row", *u_row), to_tensor("result.g_row", g_row),
                                 to_tensor("result.w_new", *w_new), to_tensor("result.pcum_new", pcum_new),
                                 to_tensor("result.p_new", p_new)};
  lq_geometry geometry = geometry_of(to_gate(gate), checkpoint.u);
  if (geometry.gate == LQ_GATE_GDN) geometry.num_key_heads = narrow(extent(token.qx, 3, 1, geometry.num_heads));
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

[[noreturn]] void refuse(const char* name, const std::string& expected, const std::string& came) {
  throw ffi::Error("ValueError", std::string("tensor '") + name + "': expected " + expected + ", got " + came, "");
}

// A tensor [n, T, ...] as the library takes it: [n T, ...], without a copy.
lq_tensor joined(const char* name, const lq_tensor& tensor, int64_t tokens) {
  if (tensor.ndim < 2 || tensor.ndim > LQ_MAX_DIMS) {
    refuse(name, "a dimension of sequences and one of tokens in front", std::to_string(tensor.ndim) + " dimensions");
  }
  if (tensor.shape[1] != tokens) {
    refuse(name, "as many tokens (dimension 1) as 'mixed' has, " + std::to_string(tokens),
           std::to_string(tensor.shape[1]));
  }
  const bool strided = tensor.shape[0] > 1 && tokens > 1;
  if (strided && tensor.strides[0] != tokens * tensor.strides[1]) {
    refuse(name, "the tokens of all sequences at one stride",
           "strides " + std::to_string(tensor.strides[0]) + " and " + std::to_string(tensor.strides[1]));
  }
  lq_tensor rows = tensor;
  rows.ndim = tensor.ndim - 1;
  rows.shape[0] = tensor.shape[0] * tokens;
  rows.strides[0] = tokens > 1 ? tensor.strides[1] : tensor.strides[0];
  for (int32_t d = 1; d < rows.ndim; ++d) {
    rows.shape[d] = tensor.shape[d + 1];
    rows.strides[d] = tensor.strides[d + 1];
  }
  return rows;
}

// T of the rows [n, T, ...].
int64_t tokens_of(const lq_tensor& mixed) {
  if (mixed.ndim != 3) refuse("mixed", "3 dimensions: sequences, their tokens, a row", std::to_string(mixed.ndim));
  return mixed.shape[1];
}

int64_t draft_bytes(const ffi::String& gate, int64_t num_heads, int64_t num_key_heads, int64_t rank, int64_t n,
                    int64_t tokens) {
  const lq_geometry geometry = geometry_with(to_gate(gate), num_heads, num_key_heads, rank);
  int64_t bytes = 0;
  check(lq_draft_bytes(&geometry, n, narrow(tokens), &bytes));
  return bytes;
}

void draft(const PoolRef& pool, Array idx, Array mixed, Array a, Array b, Array A_log, Array dt_bias, Array o,
           Array scratch, const ffi::Optional<double>& lower_bound) {
  const lq_tensor indices = to_tensor("idx", *idx);
  lq_token token = to_token(mixed, a, b, A_log, dt_bias);
  const int64_t tokens = tokens_of(token.mixed);
  token.mixed = joined("mixed", token.mixed, tokens);
  token.a = joined("a", token.a, tokens);
  token.b = joined("b", token.b, tokens);
  const lq_tensor output = joined("o", to_tensor("o", *o), tokens);
  const lq_tensor memory = to_tensor("scratch", *scratch);
  const lq_step_params params = to_params(lower_bound);
  check(lq_pool_draft(pool->get(), &indices, narrow(tokens), &token, &params, &memory, &output,
                      stream_of(pool->device())));
}

void commit(const PoolRef& pool, Array idx, int64_t tokens, Array scratch, Array accepted, Array q0) {
  const lq_tensor indices = to_tensor("idx", *idx);
  const lq_tensor memory = to_tensor("scratch", *scratch);
  const lq_tensor counts = to_tensor("accepted", *accepted);
  const lq_tensor start_basis = to_tensor("q0", *q0);
  check(
      lq_pool_commit(pool->get(), &indices, narrow(tokens), &memory, &counts, &start_basis, stream_of(pool->device())));
}

}  // namespace
}  // namespace leapquant::python

TVM_FFI_DLL_EXPORT_TYPED_FUNC(step, leapquant::python::step)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(step_inplace, leapquant::python::step_inplace)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(step_flush_inplace, leapquant::python::step_flush_inplace)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(draft_bytes, leapquant::python::draft_bytes)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(draft, leapquant::python::draft)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(commit, leapquant::python::commit)
