// SPDX-License-Identifier: Apache-2.0
#include "mirrors.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "backends.h"
#include "device_memory.h"
#include "judge/pool_io.h"
#include "judge/verify.h"

namespace leapquant::conformance {
namespace {

bool on_host(lq_device device) { return device.type == LQ_DEVICE_CPU; }

// Whether the backend's side and the host's are different bytes. LQ_TEST_COPIES makes them so for backends on host
// memory as well: the copies that a test forgets then show on a machine without a device.
bool are_apart(lq_device device) { return !on_host(device) || is_set("LQ_TEST_COPIES"); }

void* allocate(lq_device device, size_t bytes) {
  if (!on_host(device)) return allocate_on_device(device.index, bytes);
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

void copy_in(lq_device device, void* memory, const void* host, size_t bytes) {
  if (on_host(device)) {
    std::memcpy(memory, host, bytes);
  } else {
    copy_to_device(device.index, memory, host, bytes);
  }
}

void copy_out(lq_device device, void* host, const void* memory, size_t bytes) {
  if (on_host(device)) {
    std::memcpy(host, memory, bytes);
  } else {
    copy_from_device(device.index, host, memory, bytes);
  }
}

}  // namespace

lq_checkpoint mirrored(Mirrors& mirrors, const judge::CheckpointTensors& tensors) {
  lq_checkpoint result = judge::public_checkpoint(tensors);
  for (lq_tensor* tensor : {&result.codes, &result.s_k, &result.s_v, &result.u, &result.q}) {
    *tensor = mirrors.add(*tensor);
  }
  return result;
}

lq_window mirrored(Mirrors& mirrors, const judge::WindowTensors& tensors) {
  lq_window result = judge::public_window(tensors);
  for (lq_tensor* tensor : {&result.kbuf, &result.ubuf, &result.w, &result.gbuf, &result.pcum, &result.p}) {
    if (tensor->dtype != LQ_DTYPE_NONE) *tensor = mirrors.add(*tensor);  // else of the other gate
  }
  return result;
}

void Mirrors::Free::operator()(void* memory) const noexcept {
  if (on_host(device)) {
    std::free(memory);
  } else {
    free_on_device(memory);
  }
}

lq_tensor Mirrors::add(lq_tensor host) {
  const size_t bytes = tensor_bytes(host);
  lq_tensor twin = host;
  twin.device = device_;
  if (!are_apart(device_)) return twin;
  twin.data = nullptr;
  if (bytes == 0) return twin;
  twin.data = allocate(device_, bytes);
  pairs_.push_back({host.data, std::unique_ptr<void, Free>(twin.data, Free{device_}), bytes});
  copy_in(device_, twin.data, host.data, bytes);
  return twin;
}

lq_tensor Mirrors::add(std::vector<int32_t>& host) { return add(tensor(host.data(), LQ_INT32, {std::ssize(host)})); }

void Mirrors::upload() const {
  for (const Pair& pair : pairs_) copy_in(device_, pair.twin.get(), pair.host, pair.bytes);
}

void Mirrors::download() const {
  for (const Pair& pair : pairs_) copy_out(device_, pair.host, pair.twin.get(), pair.bytes);
}

FlushCall::FlushCall(const Context& context, const judge::FlushInputs& valid)
    : mirrors_(context.info().device),
      inputs(valid),
      output(unwritten<judge::CheckpointTensors>(valid.geometry, valid.batch)),
      geometry(judge::public_geometry(valid.geometry)),
      checkpoint(mirrored(mirrors_, inputs.checkpoint)),
      window(mirrored(mirrors_, inputs.window)),
      q0(mirrors_.add(judge::public_start_basis(inputs))),
      result(mirrored(mirrors_, output)) {}

lq_status FlushCall::enqueue(const Context& context, void* stream) const {
  return lq_flush(context.get(), &geometry, &checkpoint, &window, &q0, &result, flags, stream);
}

lq_status FlushCall::run(const Context& context) {
  return mirrors_.with_copies([&] { return enqueue(context); });
}

judge::CheckpointTensors flush_or_die(const Context& context, const judge::FlushInputs& inputs) {
  FlushCall call(context, inputs);
  check(call.run(context));
  return std::move(call.output);
}

InplaceArguments::InplaceArguments(lq_device device, std::vector<int32_t> index_values,
                                   const judge::FlushInputs& inputs)
    : index_values_(std::move(index_values)),
      basis_values_(inputs.q0),
      mirrors_(device),
      indices(mirrors_.add(index_values_)),
      q0(mirrors_.add(tensor(basis_values_.data(), LQ_FLOAT32, {inputs.geometry.value_dim, inputs.geometry.rank}))) {}

void InplaceArguments::set_indices(const std::vector<int32_t>& values) {
  std::copy(values.begin(), values.end(), index_values_.begin());
  indices.shape[0] = static_cast<int64_t>(values.size());
  mirrors_.upload();
}

void InplaceArguments::set_start_basis(const std::vector<float>& values) {
  std::copy(values.begin(), values.end(), basis_values_.begin());
  mirrors_.upload();
}

MirroredPool::MirroredPool(const Context& context, const lq_pool_options& options)
    : pool_(context, options), device_(pool_.tensors()), host_(device_) {
  if (!are_apart(device_.raw.device)) return;
  for (const auto member : kPoolOwners) {
    lq_tensor& tensor = host_.*member;
    if (tensor.dtype == LQ_DTYPE_NONE) continue;
    memory_.emplace_back(tensor_bytes(tensor));
    tensor.data = memory_.back().data();
    tensor.device = kCpuDevice;
  }
  for (lq_tensor* view : {&host_.codes, &host_.s_k, &host_.s_v, &host_.uq}) {
    view->data = memory_[0].data() + (static_cast<char*>(view->data) - static_cast<char*>(device_.raw.data));
    view->device = kCpuDevice;
  }
  download();
}

MirroredPool::MirroredPool(const Context& context, const Geometry& geometry, int64_t num_slots, lq_layout layout)
    : MirroredPool(context, {judge::public_geometry(geometry), layout, num_slots, nullptr, LQ_POOL_DEFAULT}) {}

int32_t& MirroredPool::counter(int64_t slot, int64_t head) const {
  return static_cast<int32_t*>(host_.hcnt.data)[slot * host_.hcnt.strides[0] + head];
}

void MirroredPool::upload(lq_tensor lq_pool_tensors::*member) const {
  const lq_tensor& tensor = device_.*member;
  if (tensor_bytes(tensor) != 0 && are_apart(tensor.device))
    copy_in(tensor.device, tensor.data, (host_.*member).data, tensor_bytes(tensor));
}

void MirroredPool::download(lq_tensor lq_pool_tensors::*member) const {
  const lq_tensor& tensor = device_.*member;
  if (tensor_bytes(tensor) != 0 && are_apart(tensor.device))
    copy_out(tensor.device, (host_.*member).data, tensor.data, tensor_bytes(tensor));
}

void MirroredPool::upload() const {
  for (const auto member : kPoolOwners) upload(member);
}

void MirroredPool::download() const {
  for (const auto member : kPoolOwners) download(member);
}

void MirroredPool::flush(const std::vector<int32_t>& indices, const judge::FlushInputs& inputs) const {
  const InplaceArguments arguments(device_.raw.device, indices, inputs);
  upload();
  pool_.flush_inplace(arguments.indices, arguments.q0);
  download();
}

void MirroredPool::check_indices(const std::vector<int32_t>& indices) const {
  std::vector<int32_t> values = indices;
  Mirrors mirror(device_.raw.device);
  pool_.check_indices(mirror.add(values));
}

MirroredPool filled_pool(const Context& context, const judge::FlushInputs& inputs, int64_t num_slots,
                         lq_layout layout) {
  MirroredPool pool(context, inputs.geometry, num_slots, layout);
  for (int64_t item = 0; item < inputs.batch; ++item) {
    judge::write_slot(pool.host(), item + 1, inputs, item);
    judge::set_counters(pool.host(), item + 1, inputs.geometry.window);
  }
  pool.upload();
  return pool;
}

std::vector<unsigned char> bytes_of(const MirroredPool& pool) {
  std::vector<unsigned char> bytes;
  for (const auto member : kPoolOwners) {
    const lq_tensor& tensor = pool.host().*member;
    const auto* const first = static_cast<const unsigned char*>(tensor.data);
    bytes.insert(bytes.end(), first, first + tensor_bytes(tensor));
  }
  return bytes;
}

}  // namespace leapquant::conformance
