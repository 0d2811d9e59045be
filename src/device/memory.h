// SPDX-License-Identifier: Apache-2.0
//
// Memory of the device that a context works on. The library copies nothing: its callers own their tensors. Judge, bench
// and program make theirs on the host; here they get twins on the device. On the CPU a tensor is its own twin.
//
// Everything here throws Error, as the C++ layer of the library does.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "leapquant/leapquant.hpp"

namespace leapquant::device {

// Bytes of a contiguous tensor.
size_t tensor_bytes(const lq_tensor& tensor);

// Memory of a CUDA device. Copies have arrived when they return, for work on any stream; but for one that is enqueued.
class CudaMemory {
 public:
  CudaMemory(int32_t device, size_t bytes);

  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }
  void upload(const void* host);
  void download(void* host) const;
  // From and to as many bytes on the same device, the latter in the order of `stream`, a cudaStream_t.
  void copy_from(const void* memory);
  void enqueue_copy_to(void* memory, void* stream) const;

 private:
  struct Free {
    void operator()(void* memory) const noexcept;
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

// Twins of contiguous host tensors on one device. They live as long as this object.
class Twins {
 public:
  explicit Twins(lq_device place) : place_(place) {}

  // The same shape and contents on the device. The tensor that a call doesn't use stays the zero tensor.
  lq_tensor twin_of(const lq_tensor& host);
  lq_checkpoint twin_of(const lq_checkpoint& host);
  lq_window twin_of(const lq_window& host);

  // Waits for the device's default stream and copies the contents of a twin back.
  void fetch(const lq_checkpoint& twin, const lq_checkpoint& host) const;
  void fetch(const lq_tensor& twin, const lq_tensor& host) const;

 private:
  lq_device place_;
  std::vector<CudaMemory> memory_;
};

}  // namespace leapquant::device
