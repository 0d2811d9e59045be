// SPDX-License-Identifier: Apache-2.0
#include <cctype>
#include <fstream>
#include <string>

#include "bench/cuda/gpu_bench.h"
#include "device/cuda_check.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;

int attribute(cudaDeviceAttr name, int32_t device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, name, device), "describing the device");
  return value;
}

// 13000 -> "13.0"
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// "580.95.05": the first number of the driver's line in /proc; "unknown" where the system hides it.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  for (std::string word; file >> word;) {
    if (std::isdigit(static_cast<unsigned char>(word.front())) != 0 && word.find('.') != std::string::npos) return word;
  }
  return "unknown";
}

}  // namespace

GpuDescription describe_gpu(int32_t device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "describing the device");
  int driver = 0;
  int runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver), "asking for the driver's version");
  check_cuda(cudaRuntimeGetVersion(&runtime), "asking for the runtime's version");
  return {.name = properties.name,
          .driver = driver_version(),
          .driver_cuda = version_text(driver),
          .cuda_runtime = version_text(runtime),
          .multiprocessors = properties.multiProcessorCount,
          .sm_clock_mhz = attribute(cudaDevAttrClockRate, device) / 1000,
          .memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, device) / 1000,
          .l2_cache_bytes = properties.l2CacheSize};
}

}  // namespace leapquant::bench
