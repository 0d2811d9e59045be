// SPDX-License-Identifier: Apache-2.0
//
// Errors of the CUDA runtime as statuses, and the current device kept as the caller left it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "core/status.h"

namespace leapquant::cuda {

// Takes the error off the runtime as well, so that it doesn't surface in a later call.
inline Status to_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kCuda;
  return {code, std::string("cuda: ") + what + ": " + cudaGetErrorString(error)};
}

#define LQ_RETURN_IF_CUDA_ERROR(expression, what) LQ_RETURN_IF_ERROR(::leapquant::cuda::to_status((expression), (what)))

// Makes a device current and puts the caller's back at the end of the scope.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    error_ = cudaGetDevice(&previous_);
    if (error_ == cudaSuccess && previous_ != device) error_ = cudaSetDevice(device);
    changed_ = error_ == cudaSuccess && previous_ != device;
  }
  ~DeviceGuard() {
    if (changed_) (void)cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

  Status status() const { return to_status(error_, "choosing the device"); }

 private:
  cudaError_t error_ = cudaSuccess;
  int previous_ = 0;
  bool changed_ = false;
};

}  // namespace leapquant::cuda
