// SPDX-License-Identifier: Apache-2.0
//
// Device time of calls, measured inside a CUDA graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <type_traits>

#include "bench/spread.h"
#include "device/memory.h"

namespace leapquant::bench {

// Calls in a graph. Each works on a set of data of its own, so that it finds none of it in the cache.
inline constexpr int kSets = 8;
// One more set is for a call before the measured ones, which brings the code back into the caches that the sweep
// emptied.
inline constexpr int kWarmSet = kSets;
inline constexpr int kAllSets = kSets + 1;

class TimedGraph {
 public:
  using Call = std::function<void(int set, int round, cudaStream_t stream)>;
  using Prepare = std::function<void(cudaStream_t stream)>;

  // Captures kSets calls, so many rounds of them, after one call that runs.
  TimedGraph(int32_t device, Call call, int rounds = 1);

  // Microseconds of one call, over many replays of the graph. Before each, outside the measured time, come `prepare`
  // a sweep that leaves nothing of it in the L2 cache, and the call on the set kWarmSet.
  Spread time(const Prepare& prepare);

 private:
  template <class Handle, auto Function>
  struct Destroy {
    void operator()(Handle handle) const noexcept { (void)Function(handle); }
  };
  template <class Handle, auto Function>
  using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, Function>>;

  static device::CudaMemory sweep_memory(int32_t device);
  double replay(const Prepare& prepare);

  Call call_;
  int rounds_;
  device::CudaMemory sweep_;
  Owner<cudaStream_t, cudaStreamDestroy> stream_;
  Owner<cudaEvent_t, cudaEventDestroy> begin_;
  Owner<cudaEvent_t, cudaEventDestroy> end_;
  Owner<cudaGraphExec_t, cudaGraphExecDestroy> graph_;
};

}  // namespace leapquant::bench
