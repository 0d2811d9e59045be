// SPDX-License-Identifier: Apache-2.0
//
// Launches whose blocks are placed while the kernel before them in the stream is still ending, which takes the time of
// a launch off every call in a row of them. What such a kernel reads may not be there yet when it begins: before it
// touches global memory it calls wait_for_earlier_kernels().
#pragma once

#include <cuda_runtime_api.h>

namespace leapquant::cuda {

// Whether a kernel can be launched so on the current device: its image has the wait from sm_90 on, and drivers capture
// such launches in graphs from CUDA 12.3 on. Loads the kernel.
template <typename Arguments>
cudaError_t can_launch_ahead(void (*kernel)(Arguments), bool* ahead) {
  constexpr int kFirstVirtualArchitecture = 90;
  constexpr int kFirstDriver = 12030;
  cudaFuncAttributes attributes;
  cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  int driver = 0;
  if (error == cudaSuccess) error = cudaDriverGetVersion(&driver);
  *ahead = error == cudaSuccess && attributes.ptxVersion >= kFirstVirtualArchitecture && driver >= kFirstDriver;
  return error;
}

struct LaunchShape {
  int blocks;
  int threads;
  size_t shared_bytes;
};

template <typename Arguments>
cudaError_t launch_ahead(void (*kernel)(Arguments), const LaunchShape& shape, bool ahead, const Arguments& arguments,
                         cudaStream_t stream) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = ahead ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, arguments);
}

}  // namespace leapquant::cuda
