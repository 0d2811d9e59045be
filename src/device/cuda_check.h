// SPDX-License-Identifier: Apache-2.0
//
// Errors of the CUDA runtime as exceptions of the library's C++ layer.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "leapquant/leapquant.hpp"

namespace leapquant::device {

// Throws Error unless the call that did `what` succeeded.
inline void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const lq_status status = error == cudaErrorMemoryAllocation ? LQ_OUT_OF_MEMORY : LQ_CUDA;
  throw Error(status, std::string("cuda: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace leapquant::device
