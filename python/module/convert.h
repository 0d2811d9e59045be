// SPDX-License-Identifier: Apache-2.0
//
// Between the types of tvm-ffi and those of the C interface.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>

#include "leapquant/leapquant.h"

namespace leapquant::python {

using Array = DLTensor*;  // not to be written through: tvm-ffi passes no pointer to const

// Throws the Python exception that stands for `status`, with the library's text, unless it is LQ_OK. To be called on
// the thread that made the call.
void check(lq_status status);

// The library's view of an array; `name` stands in the text of a refusal. 16-bit unsigned integers are taken for the
// bit patterns of bfloat16, which NumPy lacks.
lq_tensor to_tensor(const char* name, const DLTensor& array);

lq_device to_device(const DLDevice& device);

// The default geometry with other heads and another rank.
lq_geometry kda_geometry(int64_t num_heads, int64_t rank);

// shape[dimension] of a tensor of `ndim` dimensions; of any other, `otherwise`: the library refuses it later.
int64_t extent(const lq_tensor& tensor, int32_t ndim, int32_t dimension, int64_t otherwise);

// Heads and rank come from u [B, H, R, K]; all else is the format's.
lq_geometry geometry_of(const lq_tensor& u);

}  // namespace leapquant::python
