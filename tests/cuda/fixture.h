// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the CUDA backend share: streams, graphs and device memory with an owner.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "backends.h"
#include "step_calls.h"

namespace leapquant::cuda_test {

inline constexpr lq_device kDevice{LQ_DEVICE_CUDA, 0};

void check_cuda(cudaError_t error);
int device_count();

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override { conformance::need_devices(device_count(), 1); }
};

// Memory of the current device.
class DeviceArray {
 public:
  explicit DeviceArray(size_t bytes);
  char* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  std::vector<unsigned char> download() const;

 private:
  struct Free {
    void operator()(char* memory) const { (void)cudaFree(memory); }
  };
  std::unique_ptr<char, Free> memory_;
  size_t bytes_;
};

// A tensor's device, said to be the tests' own.
inline lq_tensor on_device(lq_tensor tensor) {
  tensor.device = kDevice;
  return tensor;
}

// A stream that waits for no other.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

// What `enqueue(stream)` does, as a graph.
class Graph {
 public:
  template <class Enqueue>
  Graph(const Stream& stream, const Enqueue& enqueue) {
    check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
    enqueue(stream.get());
    check_cuda(cudaStreamEndCapture(stream.get(), &graph_));
    check_cuda(cudaGraphInstantiate(&executable_, graph_, 0));
  }
  ~Graph() {
    (void)cudaGraphExecDestroy(executable_);
    (void)cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(cudaStream_t stream) const { check_cuda(cudaGraphLaunch(executable_, stream)); }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// What a pool holds now, kept on the device, to be put back on a stream.
class Snapshot {
 public:
  explicit Snapshot(const Pool& pool);
  void restore(const Pool& pool, cudaStream_t stream) const;

 private:
  std::vector<DeviceArray> arrays_;  // in the order of kPoolOwners
};

}  // namespace leapquant::cuda_test
