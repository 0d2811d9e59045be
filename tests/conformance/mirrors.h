// SPDX-License-Identifier: Apache-2.0
//
// Tensors and pools in the memory of the backend under test, and what they hold on the host. On host memory the two are
// the same and nothing is copied, so that a test is written once: edit the host's side, call, look at the host's side.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "device/memory.h"
#include "judge/tensors.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::conformance {

using device::tensor_bytes;

// Twins of host tensors on a device.
class Mirrors {
 public:
  explicit Mirrors(lq_device device) : device_(device) {}

  // The twin of a contiguous host tensor, which must outlive this; holds what that holds now.
  lq_tensor add(lq_tensor host);
  // That of a list [n] of indices or counts.
  lq_tensor add(std::vector<int32_t>& host);
  void upload() const;
  void download() const;  // waits for the device

  // Makes a call on the twins between the two, and returns what it does.
  template <class Call>
  lq_status with_copies(const Call& call) const {
    upload();
    const lq_status status = call();
    download();
    return status;
  }

 private:
  struct Free {
    lq_device device;
    void operator()(void* memory) const noexcept;
  };
  struct Pair {
    void* host;
    std::unique_ptr<void, Free> twin;
    size_t bytes;
  };

  lq_device device_;
  std::vector<Pair> pairs_;
};

// The public form of tensors, in the memory of a device.
lq_checkpoint mirrored(Mirrors& mirrors, const judge::CheckpointTensors& tensors);
lq_window mirrored(Mirrors& mirrors, const judge::WindowTensors& tensors);

// What results look like that nobody has written.
template <class Tensors>
Tensors unwritten(const Geometry& geometry, int64_t batch) {
  Tensors tensors(geometry, batch);
  judge::for_each_tensor(tensors, [](auto& values) {
    if (!values.empty()) std::memset(values.data(), 0xFF, values.size() * sizeof(values[0]));
  });
  return tensors;
}

// All bytes of the tensors of a struct, in its order.
template <class Tensors>
std::vector<unsigned char> bytes_of(const Tensors& tensors) {
  std::vector<unsigned char> bytes;
  judge::for_each_tensor(tensors, [&](const auto& values) {
    const auto* const first = reinterpret_cast<const unsigned char*>(values.data());
    bytes.insert(bytes.end(), first, first + values.size() * sizeof(values[0]));
  });
  return bytes;
}

// A valid functional call, which a test may spoil.
class FlushCall {
  Mirrors mirrors_;

 public:
  FlushCall(const Context& context, const judge::FlushInputs& valid);
  FlushCall(const FlushCall&) = delete;
  FlushCall& operator=(const FlushCall&) = delete;

  // Gives the backend what `inputs` and `output` hold, calls, waits, and brings all of it back.
  lq_status run(const Context& context);
  // The call alone.
  lq_status enqueue(const Context& context, void* stream = nullptr) const;
  void download() const { mirrors_.download(); }

  judge::FlushInputs inputs;
  judge::CheckpointTensors output;  // bytes of 0xFF to begin with
  lq_geometry geometry;
  lq_checkpoint checkpoint;
  lq_window window;
  lq_tensor q0;
  lq_checkpoint result;
  uint32_t flags = LQ_FLUSH_DEFAULT;
};

judge::CheckpointTensors flush_or_die(const Context& context, const judge::FlushInputs& inputs);

// Indices and start basis of in-place calls.
class InplaceArguments {
  std::vector<int32_t> index_values_;
  std::vector<float> basis_values_;
  Mirrors mirrors_;

 public:
  InplaceArguments(lq_device device, std::vector<int32_t> indices, const judge::FlushInputs& inputs);
  InplaceArguments(const InplaceArguments&) = delete;
  InplaceArguments& operator=(const InplaceArguments&) = delete;

  // Other contents, of at most the length that there was, in the same memory.
  void set_indices(const std::vector<int32_t>& indices);
  void set_start_basis(const std::vector<float>& q0);

  lq_tensor indices;
  lq_tensor q0;
};

// A pool and its bytes on the host.
class MirroredPool {
 public:
  MirroredPool(const Context& context, const lq_pool_options& options);
  MirroredPool(const Context& context, const Geometry& geometry, int64_t num_slots,
               lq_layout layout = LQ_LAYOUT_COMPACT);

  const Pool& pool() const { return pool_; }
  const lq_pool_tensors& device() const { return device_; }  // the pool's own tensors
  const lq_pool_tensors& host() const { return host_; }      // the same over the bytes on the host
  int32_t& counter(int64_t slot, int64_t head) const;

  void upload() const;
  void download() const;
  void upload(lq_tensor lq_pool_tensors::*member) const;
  void download(lq_tensor lq_pool_tensors::*member) const;

  // Makes a call that must succeed, with all copies of pool and arguments around it.
  template <class Call>
  void with_copies(const Mirrors& arguments, const Call& call) const {
    upload();
    leapquant::check(arguments.with_copies(call));
    download();
  }
  // Uploads, flushes in place, and downloads.
  void flush(const std::vector<int32_t>& indices, const judge::FlushInputs& inputs) const;
  void check_indices(const std::vector<int32_t>& indices) const;
  lq_pool_errors read_errors() const { return pool_.read_errors(); }

 private:
  Pool pool_;
  lq_pool_tensors device_;
  lq_pool_tensors host_;
  std::vector<std::vector<char>> memory_;  // of the host's side, where it isn't the pool's own
};

// The members that own bytes.
inline constexpr lq_tensor lq_pool_tensors::*kPoolOwners[] = {
    &lq_pool_tensors::raw,  &lq_pool_tensors::kbuf, &lq_pool_tensors::ubuf, &lq_pool_tensors::w,
    &lq_pool_tensors::gbuf, &lq_pool_tensors::pcum, &lq_pool_tensors::p,    &lq_pool_tensors::hcnt};

// A pool whose slots 1, 2, ... hold the items of `inputs`, all programs due, on both sides.
MirroredPool filled_pool(const Context& context, const judge::FlushInputs& inputs, int64_t num_slots,
                         lq_layout layout = LQ_LAYOUT_COMPACT);

// All bytes of the host's side: raw, window tensors, counters.
std::vector<unsigned char> bytes_of(const MirroredPool& pool);

}  // namespace leapquant::conformance
