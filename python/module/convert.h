// SPDX-License-Identifier: Apache-2.0
//
// Between the types of tvm-ffi and those of the C interface.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <cstdint>

#include "leapquant/leapquant.h"

namespace leapquant::python {

using Array = DLTensor*;                          // not to be written through: tvm-ffi passes no pointer to const
using OptionalArray = tvm::ffi::Optional<Array>;  // none: a tensor that another gate has

// Throws the Python exception that stands for `status`, with the library's text, unless it is LQ_OK. To be called on
// the thread that made the call.
void check(lq_status status);

// The library's view of an array; `name` stands in the text of a refusal. 16-bit unsigned integers are taken for the
// bit patterns of bfloat16, which NumPy lacks.
lq_tensor to_tensor(const char* name, const DLTensor& array);
lq_tensor to_tensor(const char* name, const OptionalArray& array);

lq_device to_device(const DLDevice& device);

// The tensors of a call's input.
lq_checkpoint to_checkpoint(Array codes, Array s_k, Array s_v, Array u, Array q);

// `p` may have one dimension more, of extent 1: so the published package has it in pools.
lq_window to_window(Array kbuf, Array ubuf, Array w, const OptionalArray& gbuf, const OptionalArray& pcum,
                    const OptionalArray& p);

// "kda" or "gdn".
lq_gate to_gate(const tvm::ffi::String& name);

// Beyond 32 bits nothing is valid: the library says so of the largest value too.
int32_t narrow(int64_t value);

// The default geometry of a gate with other heads and another rank.
lq_geometry geometry_with(lq_gate gate, int64_t num_heads, int64_t num_key_heads, int64_t rank);

// shape[dimension] of a tensor of `ndim` dimensions; of any other, `otherwise`: the library refuses it later.
int64_t extent(const lq_tensor& tensor, int32_t ndim, int32_t dimension, int64_t otherwise);

// Heads and rank come from u [B, H, R, K]; all else is the format's. Every program has keys of its own.
lq_geometry geometry_of(lq_gate gate, const lq_tensor& u);

}  // namespace leapquant::python
