// SPDX-License-Identifier: Apache-2.0
//
// Device tensors for the tests of the CUDA backend, and host mirrors of them.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "judge/families.h"
#include "judge/pool_io.h"
#include "judge/verify.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::cuda_test {

inline constexpr lq_device kDevice{LQ_DEVICE_CUDA, 0};

void check_cuda(cudaError_t error);

// Skips without a device; fails instead when LQ_REQUIRE_GPU is set.
class DeviceTest : public testing::Test {
 protected:
  void SetUp() override;
};

// Device memory with the contents of a host array.
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(size_t bytes);
  template <class T>
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size() * sizeof(T)) {
    upload(values.data());
  }
  void upload(const void* host);
  void download(void* host) const;
  void* data() const { return memory_.get(); }
  size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { (void)cudaFree(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  size_t bytes_ = 0;
};

// A host tensor's twin: the same shape over device memory.
lq_tensor on_device(lq_tensor host, const DeviceArray& memory);
size_t tensor_bytes(const lq_tensor& tensor);

Geometry geometry_of(int32_t heads, int32_t rank = 4);
judge::FlushInputs inputs_of(judge::Family family, const Geometry& geometry, int64_t batch, uint64_t seed = 7);

// One flush's tensors on the device, and its result.
class DeviceFlush {
 public:
  explicit DeviceFlush(const judge::FlushInputs& inputs);
  lq_status run(const Context& context, uint32_t flags = LQ_FLUSH_DEFAULT, cudaStream_t stream = nullptr) const;
  judge::CheckpointTensors result() const;

 private:
  Geometry geometry_;
  int64_t batch_;
  std::vector<DeviceArray> arrays_;
  lq_checkpoint source_;
  lq_window window_;
  lq_tensor start_basis_;
  lq_checkpoint target_;
};

judge::CheckpointTensors flush_or_die(const Context& context, const judge::FlushInputs& inputs);

std::vector<unsigned char> bytes_of(const judge::CheckpointTensors& tensors);

// The programs [first, first + count) of a batch with one item each, in that order, as a batch of `count` items and one
// head.
judge::FlushInputs single_heads(const judge::FlushInputs& inputs);

// A pool in device memory with a mirror on the host: edit the mirror, upload, flush, download.
class MirroredPool {
 public:
  MirroredPool(const Context& context, const Geometry& geometry, int64_t num_slots,
               lq_layout layout = LQ_LAYOUT_COMPACT);
  const Pool& pool() const { return pool_; }
  const lq_pool_tensors& host() const { return host_; }  // views of the mirror
  int32_t& counter(int64_t slot, int64_t head);
  void upload();
  void download();
  std::vector<unsigned char> bytes();  // of the device, all owning tensors

 private:
  template <class Visit>
  void for_each_owner(Visit visit);

  Pool pool_;
  lq_pool_tensors device_;
  lq_pool_tensors host_;
  std::vector<std::vector<char>> memory_;
};

// A pool whose slots 1, 2, ... hold the items of `inputs`, all programs due; uploaded.
std::unique_ptr<MirroredPool> filled_pool(const Context& context, const judge::FlushInputs& inputs, int64_t num_slots,
                                          lq_layout layout = LQ_LAYOUT_COMPACT);

// Index vector and start basis on the device.
struct InplaceArguments {
  InplaceArguments(const std::vector<int32_t>& indices, const judge::FlushInputs& inputs);
  DeviceArray index_memory;
  DeviceArray basis_memory;
  lq_tensor indices;
  lq_tensor start_basis;
};

}  // namespace leapquant::cuda_test
