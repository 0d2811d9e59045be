// SPDX-License-Identifier: Apache-2.0
#include "device/memory.h"

#if LQ_WITH_CUDA
#include "device/cuda_check.h"
#endif

namespace leapquant::device {
namespace {

size_t element_bytes(lq_dtype dtype) {
  switch (dtype) {
    case LQ_INT8:
      return 1;
    case LQ_FLOAT16:
    case LQ_BFLOAT16:
      return 2;
    case LQ_INT32:
    case LQ_FLOAT32:
      return 4;
    case LQ_DTYPE_NONE:
      break;
  }
  return 0;
}

}  // namespace

size_t tensor_bytes(const lq_tensor& tensor) {
  size_t bytes = element_bytes(tensor.dtype);
  for (int32_t d = 0; d < tensor.ndim; ++d) bytes *= static_cast<size_t>(tensor.shape[d]);
  return bytes;
}

#if LQ_WITH_CUDA

CudaMemory::CudaMemory(int32_t device, size_t bytes) : bytes_(bytes) {
  check_cuda(cudaSetDevice(device), "choosing the device");
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "allocating device memory");
  memory_.reset(memory);
}

void CudaMemory::Free::operator()(void* memory) const noexcept { (void)cudaFree(memory); }

void CudaMemory::upload(const void* host) {
  check_cuda(cudaMemcpy(data(), host, bytes_, cudaMemcpyHostToDevice), "copying to the device");
  // From pageable memory the last piece may still be on its way, and only the default stream would wait for it.
  check_cuda(cudaStreamSynchronize(nullptr), "copying to the device");
}

void CudaMemory::download(void* host) const {
  check_cuda(cudaMemcpy(host, data(), bytes_, cudaMemcpyDeviceToHost), "copying from the device");
}

void CudaMemory::copy_from(const void* memory) {
  check_cuda(cudaMemcpy(data(), memory, bytes_, cudaMemcpyDeviceToDevice), "copying on the device");
  check_cuda(cudaStreamSynchronize(nullptr), "copying on the device");  // such a copy doesn't wait for itself
}

void CudaMemory::enqueue_copy_to(void* memory, void* stream) const {
  check_cuda(cudaMemcpyAsync(memory, data(), bytes_, cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
             "copying on the device");
}

#else

CudaMemory::CudaMemory(int32_t /*device*/, size_t bytes) : bytes_(bytes) {
  throw Error(LQ_UNSUPPORTED, "this build has no CUDA");
}

void CudaMemory::Free::operator()(void* /*memory*/) const noexcept {}
void CudaMemory::upload(const void* /*host*/) {}
void CudaMemory::download(void* /*host*/) const {}
void CudaMemory::copy_from(const void* /*memory*/) {}
void CudaMemory::enqueue_copy_to(void* /*memory*/, void* /*stream*/) const {}

#endif

lq_tensor Twins::twin_of(const lq_tensor& host) {
  if (place_.type == LQ_DEVICE_CPU || host.data == nullptr) return host;
  CudaMemory memory(place_.index, tensor_bytes(host));
  memory.upload(host.data);
  lq_tensor twin = host;
  twin.data = memory.data();
  twin.device = place_;
  memory_.push_back(std::move(memory));
  return twin;
}

lq_checkpoint Twins::twin_of(const lq_checkpoint& host) {
  return {.codes = twin_of(host.codes),
          .s_k = twin_of(host.s_k),
          .s_v = twin_of(host.s_v),
          .u = twin_of(host.u),
          .q = twin_of(host.q)};
}

lq_window Twins::twin_of(const lq_window& host) {
  return {.kbuf = twin_of(host.kbuf),
          .ubuf = twin_of(host.ubuf),
          .w = twin_of(host.w),
          .gbuf = twin_of(host.gbuf),
          .pcum = twin_of(host.pcum),
          .p = twin_of(host.p)};
}

void Twins::fetch(const lq_checkpoint& twin, const lq_checkpoint& host) const {
  fetch(twin.codes, host.codes);
  fetch(twin.s_k, host.s_k);
  fetch(twin.s_v, host.s_v);
  fetch(twin.u, host.u);
  fetch(twin.q, host.q);
}

void Twins::fetch(const lq_tensor& twin, const lq_tensor& host) const {
  for (const CudaMemory& memory : memory_) {
    if (memory.data() == twin.data) memory.download(host.data);
  }
}

}  // namespace leapquant::device
