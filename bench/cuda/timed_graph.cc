// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/timed_graph.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "bench/cuda/kernels.h"
#include "device/cuda_check.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;

constexpr int kReplays = 50;
constexpr int kWarmups = 3;
constexpr size_t kLeastSweepBytes = size_t{64} << 20;
constexpr size_t kSweepsOfCache = 4;

cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return stream;
}

cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "creating an event");
  return event;
}

}  // namespace

device::CudaMemory TimedGraph::sweep_memory(int32_t device) {
  int cache_bytes = 0;
  check_cuda(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, device), "asking for the cache size");
  const size_t bytes = std::max(kLeastSweepBytes, kSweepsOfCache * static_cast<size_t>(cache_bytes));
  device::CudaMemory memory(device, bytes);
  check_cuda(cudaMemset(memory.data(), 0, memory.bytes()), "clearing device memory");
  return memory;
}

TimedGraph::TimedGraph(int32_t device, Call call, int rounds)
    : call_(std::move(call)),
      rounds_(rounds),
      sweep_(sweep_memory(device)),
      stream_(make_stream()),
      begin_(make_event()),
      end_(make_event()) {
  check_cuda(cudaDeviceSynchronize(), "finishing what was enqueued before");
  call_(kWarmSet, 0, stream_.get());  // loads its kernels, which a capture may not allow
  check_cuda(cudaStreamSynchronize(stream_.get()), "running a first call");
  check_cuda(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeGlobal), "capturing a graph");
  for (int n = 0; n < rounds * kSets; ++n) call_(n % kSets, n / kSets, stream_.get());
  cudaGraph_t captured = nullptr;
  check_cuda(cudaStreamEndCapture(stream_.get(), &captured), "capturing a graph");
  const Owner<cudaGraph_t, cudaGraphDestroy> graph(captured);
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, captured, 0), "instantiating a graph");
  graph_.reset(executable);
}

// Nothing here waits before the graph is enqueued: the device is still at work on what comes before it, so that the
// time of launching from the host isn't measured.
double TimedGraph::replay(const Prepare& prepare) {
  prepare(stream_.get());
  check_cuda(launch_sweep(sweep_.data(), sweep_.bytes(), stream_.get()), "emptying the cache");
  call_(kWarmSet, 0, stream_.get());
  check_cuda(cudaEventRecord(begin_.get(), stream_.get()), "recording an event");
  check_cuda(cudaGraphLaunch(graph_.get(), stream_.get()), "launching a graph");
  check_cuda(cudaEventRecord(end_.get(), stream_.get()), "recording an event");
  check_cuda(cudaEventSynchronize(end_.get()), "running a graph");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "reading a time");
  return 1e3 * milliseconds / (rounds_ * kSets);
}

Spread TimedGraph::time(const Prepare& prepare) {
  std::vector<double> times;
  for (int run = -kWarmups; run < kReplays; ++run) {
    const double microseconds = replay(prepare);
    if (run >= 0) times.push_back(microseconds);
  }
  return spread_of(std::move(times));
}

}  // namespace leapquant::bench
