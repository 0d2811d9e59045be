// SPDX-License-Identifier: Apache-2.0
//
// One context per device, made on first use and kept to the end of the process.
#pragma once

#include "leapquant/leapquant.h"

namespace leapquant::python {

// The context of the preferred backend for tensors on `device`. Throws where the build has none.
lq_context* context_for(const lq_device& device);

}  // namespace leapquant::python
