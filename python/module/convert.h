// SPDX-License-Identifier: Apache-2.0
//
// Between the types of tvm-ffi and those of the C interface.
#pragma once

#include <dlpack/dlpack.h>

#include "leapquant/leapquant.h"

namespace leapquant::python {

// Throws the Python exception that stands for `status`, with the library's text, unless it is LQ_OK. To be called on
// the thread that made the call.
void check(lq_status status);

// The library's view of an array; `name` stands in the text of a refusal. 16-bit unsigned integers are taken for the
// bit patterns of bfloat16, which NumPy lacks.
lq_tensor to_tensor(const char* name, const DLTensor& array);

lq_device to_device(const DLDevice& device);

}  // namespace leapquant::python
