// SPDX-License-Identifier: Apache-2.0
#include "device.h"

#include <cstdlib>
#include <stdexcept>

namespace leapquant::cuda_test {
namespace {

template <class T>
void append(std::vector<unsigned char>& bytes, const std::vector<T>& values) {
  const auto* first = reinterpret_cast<const unsigned char*>(values.data());
  bytes.insert(bytes.end(), first, first + values.size() * sizeof(T));
}

}  // namespace

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

void DeviceTest::SetUp() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess && count > 0) return;
  (void)cudaGetLastError();
  if (std::getenv("LQ_REQUIRE_GPU") != nullptr) FAIL() << "LQ_REQUIRE_GPU is set, and there is no CUDA device";
  GTEST_SKIP() << "no CUDA device";
}

DeviceArray::DeviceArray(size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  if (bytes != 0) check_cuda(cudaMalloc(&memory, bytes));
  memory_.reset(memory);
}

void DeviceArray::upload(const void* host) {
  if (bytes_ != 0) check_cuda(cudaMemcpy(data(), host, bytes_, cudaMemcpyHostToDevice));
}

void DeviceArray::download(void* host) const {
  if (bytes_ != 0) check_cuda(cudaMemcpy(host, data(), bytes_, cudaMemcpyDeviceToHost));
}

size_t tensor_bytes(const lq_tensor& tensor) {
  size_t bytes = tensor.dtype == LQ_INT8 ? 1 : tensor.dtype == LQ_FLOAT16 || tensor.dtype == LQ_BFLOAT16 ? 2 : 4;
  for (int d = 0; d < tensor.ndim; ++d) bytes *= static_cast<size_t>(tensor.shape[d]);
  return bytes;
}

lq_tensor on_device(lq_tensor host, const DeviceArray& memory) {
  host.data = memory.data();
  host.device = kDevice;
  return host;
}

Geometry geometry_of(int32_t heads, int32_t rank) {
  Geometry geometry;
  geometry.num_heads = geometry.num_key_heads = heads;
  geometry.rank = rank;
  return geometry;
}

judge::FlushInputs inputs_of(judge::Family family, const Geometry& geometry, int64_t batch, uint64_t seed) {
  judge::FamilyRequest request;
  request.geometry = geometry;
  request.family = family;
  request.batch = batch;
  request.seed = seed;
  Result<judge::FlushInputs> inputs = judge::make_inputs(request);
  if (!inputs.ok()) throw std::runtime_error(inputs.status().message());
  return std::move(inputs.value());
}

DeviceFlush::DeviceFlush(const judge::FlushInputs& inputs)
    : geometry_(inputs.geometry),
      batch_(inputs.batch),
      source_(judge::public_checkpoint(inputs.checkpoint)),
      window_(judge::public_window(inputs.window)),
      start_basis_(judge::public_start_basis(inputs)) {
  const judge::CheckpointTensors shape(inputs.geometry, inputs.batch);
  target_ = judge::public_checkpoint(shape);
  const auto mirror = [&](lq_tensor& tensor, bool poison) {
    DeviceArray memory(tensor_bytes(tensor));
    if (poison) {
      check_cuda(cudaMemset(memory.data(), 0xFF, memory.bytes()));
    } else {
      memory.upload(tensor.data);
    }
    tensor = on_device(tensor, memory);
    arrays_.push_back(std::move(memory));
  };
  for (lq_tensor* tensor : {&source_.codes, &source_.s_k, &source_.s_v, &source_.u, &source_.q, &window_.kbuf,
                            &window_.ubuf, &window_.w, &window_.gbuf, &window_.pcum, &start_basis_}) {
    mirror(*tensor, false);
  }
  for (lq_tensor* tensor : {&target_.codes, &target_.s_k, &target_.s_v, &target_.u, &target_.q}) mirror(*tensor, true);
}

lq_status DeviceFlush::run(const Context& context, uint32_t flags, cudaStream_t stream) const {
  const lq_geometry geometry = judge::public_geometry(geometry_);
  return lq_flush(context.get(), &geometry, &source_, &window_, &start_basis_, &target_, flags, stream);
}

judge::CheckpointTensors DeviceFlush::result() const {
  judge::CheckpointTensors result(geometry_, batch_);
  check_cuda(cudaDeviceSynchronize());
  const size_t first = arrays_.size() - 5;
  arrays_[first].download(result.codes.data());
  arrays_[first + 1].download(result.s_k.data());
  arrays_[first + 2].download(result.s_v.data());
  arrays_[first + 3].download(result.u.data());
  arrays_[first + 4].download(result.q.data());
  return result;
}

judge::CheckpointTensors flush_or_die(const Context& context, const judge::FlushInputs& inputs) {
  const DeviceFlush flush(inputs);
  check(flush.run(context));
  return flush.result();
}

std::vector<unsigned char> bytes_of(const judge::CheckpointTensors& tensors) {
  std::vector<unsigned char> bytes;
  append(bytes, tensors.codes);
  append(bytes, tensors.s_k);
  append(bytes, tensors.s_v);
  append(bytes, tensors.u);
  append(bytes, tensors.q);
  return bytes;
}

judge::FlushInputs single_heads(const judge::FlushInputs& inputs) {
  judge::FlushInputs result = inputs;  // [B, H, ...] and [B H, 1, ...] are the same bytes
  result.geometry.num_heads = result.geometry.num_key_heads = 1;
  result.checkpoint.geometry = result.window.geometry = result.geometry;
  result.batch = inputs.programs();
  return result;
}

MirroredPool::MirroredPool(const Context& context, const Geometry& geometry, int64_t num_slots, lq_layout layout)
    : pool_(context, judge::public_geometry(geometry), num_slots, layout), device_(pool_.tensors()), host_(device_) {
  lq_tensor* const owners[] = {&host_.raw, &host_.kbuf, &host_.ubuf, &host_.w, &host_.gbuf, &host_.pcum, &host_.hcnt};
  for (lq_tensor* tensor : owners) {
    memory_.emplace_back(tensor_bytes(*tensor));
    tensor->data = memory_.back().data();
    tensor->device = kCpuDevice;
  }
  for (lq_tensor* view : {&host_.codes, &host_.s_k, &host_.s_v, &host_.uq}) {
    const auto offset = static_cast<char*>(view->data) - static_cast<char*>(device_.raw.data);
    view->data = memory_[0].data() + offset;
    view->device = kCpuDevice;
  }
  download();
}

template <class Visit>
void MirroredPool::for_each_owner(Visit visit) {
  const lq_tensor* const device[] = {&device_.raw,  &device_.kbuf, &device_.ubuf, &device_.w,
                                     &device_.gbuf, &device_.pcum, &device_.hcnt};
  for (size_t i = 0; i < memory_.size(); ++i) visit(memory_[i], device[i]->data);
}

int32_t& MirroredPool::counter(int64_t slot, int64_t head) {
  return static_cast<int32_t*>(host_.hcnt.data)[slot * host_.hcnt.strides[0] + head];
}

void MirroredPool::upload() {
  for_each_owner([](std::vector<char>& host, void* device) {
    check_cuda(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice));
  });
}

void MirroredPool::download() {
  check_cuda(cudaDeviceSynchronize());
  for_each_owner([](std::vector<char>& host, void* device) {
    check_cuda(cudaMemcpy(host.data(), device, host.size(), cudaMemcpyDeviceToHost));
  });
}

std::vector<unsigned char> MirroredPool::bytes() {
  download();
  std::vector<unsigned char> bytes;
  for (const std::vector<char>& part : memory_) append(bytes, part);
  return bytes;
}

std::unique_ptr<MirroredPool> filled_pool(const Context& context, const judge::FlushInputs& inputs, int64_t num_slots,
                                          lq_layout layout) {
  auto pool = std::make_unique<MirroredPool>(context, inputs.geometry, num_slots, layout);
  for (int64_t item = 0; item < inputs.batch; ++item) {
    judge::write_slot(pool->host(), item + 1, inputs, item);
    judge::set_counters(pool->host(), item + 1, inputs.geometry.window);
  }
  pool->upload();
  return pool;
}

InplaceArguments::InplaceArguments(const std::vector<int32_t>& index_values, const judge::FlushInputs& inputs)
    : index_memory(index_values),
      basis_memory(inputs.q0),
      indices(tensor(index_memory.data(), LQ_INT32, {static_cast<int64_t>(index_values.size())}, kDevice)),
      start_basis(on_device(judge::public_start_basis(inputs), basis_memory)) {}

}  // namespace leapquant::cuda_test
