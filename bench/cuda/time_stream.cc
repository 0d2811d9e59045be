// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "bench/cuda/gpu_bench.h"
#include "bench/cuda/kernels.h"
#include "bench/cuda/timed_graph.h"
#include "device/cuda_check.h"
#include "device/memory.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;

constexpr size_t kAlignment = 256;  // of the streams of every set

double median_us(int32_t device, const TimedGraph::Call& call) {
  return TimedGraph(device, call).time([](cudaStream_t) {}).median;
}

}  // namespace

StreamTiming time_stream_on_gpu(int32_t device, int64_t bytes) {
  const size_t half = std::max<size_t>(static_cast<size_t>(bytes) / 2 / 16 * 16, 16);
  const size_t step = (half + kAlignment - 1) / kAlignment * kAlignment;
  const device::CudaMemory from(device, kAllSets * step);
  const device::CudaMemory to(device, kAllSets * step);
  check_cuda(cudaMemset(from.data(), 1, from.bytes()), "filling device memory");
  const auto at = [&](const device::CudaMemory& memory, int set) {
    return static_cast<char*>(memory.data()) + static_cast<size_t>(set) * step;
  };
  return {.kernel_us = median_us(device,
                                 [&](int set, int /*round*/, cudaStream_t stream) {
                                   check_cuda(launch_copy(at(to, set), at(from, set), half, stream), "copying");
                                 }),
          .memcpy_us = median_us(device, [&](int set, int /*round*/, cudaStream_t stream) {
            check_cuda(cudaMemcpyAsync(at(to, set), at(from, set), half, cudaMemcpyDeviceToDevice, stream), "copying");
          })};
}

double time_read_on_gpu(int32_t device, int64_t bytes) {
  const size_t size = std::max<size_t>(static_cast<size_t>(bytes) / 16 * 16, 16);
  const size_t step = (size + kAlignment - 1) / kAlignment * kAlignment;
  const device::CudaMemory zeros(device, kAllSets * step);
  check_cuda(cudaMemset(zeros.data(), 0, zeros.bytes()), "filling device memory");
  return median_us(device, [&](int set, int /*round*/, cudaStream_t stream) {
    check_cuda(launch_read(static_cast<char*>(zeros.data()) + static_cast<size_t>(set) * step, size, stream),
               "reading");
  });
}

}  // namespace leapquant::bench
