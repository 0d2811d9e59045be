// SPDX-License-Identifier: Apache-2.0
#include "bench/cuda/pool_fill.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "device/cuda_check.h"
#include "judge/pool_io.h"
#include "judge/verify.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;
using device::tensor_bytes;

// One tensor's part of the slots from slot 1 on, one after another.
struct SlotParts {
  char* first;
  size_t bytes;  // of a slot
};

// The parts of all tensors that a flush or a step reads, apart from the counters.
std::vector<SlotParts> slot_parts(const lq_pool_tensors& pool) {
  const auto parts = [](const lq_tensor& tensor, size_t bytes) {
    return SlotParts{static_cast<char*>(tensor.data) + bytes, bytes};
  };
  std::vector<SlotParts> result = {parts(pool.codes, static_cast<size_t>(pool.codes.strides[0]))};  // int8
  for (const lq_tensor* window : {&pool.kbuf, &pool.ubuf, &pool.w, &pool.gbuf, &pool.pcum, &pool.p}) {
    if (window->data == nullptr) continue;  // of the other gate
    result.push_back(parts(*window, tensor_bytes(*window) / static_cast<size_t>(window->shape[0])));
  }
  return result;
}

}  // namespace

void fill_items(void* target, const void* host, size_t item_bytes, size_t distinct, size_t items) {
  auto* const first = static_cast<char*>(target);
  size_t filled = std::min(items, distinct);
  check_cuda(cudaMemcpy(first, host, filled * item_bytes, cudaMemcpyHostToDevice), "filling device memory");
  while (filled < items) {
    const size_t next = std::min(filled, items - filled);
    check_cuda(cudaMemcpy(first + filled * item_bytes, first, next * item_bytes, cudaMemcpyDeviceToDevice),
               "filling device memory");
    filled += next;
  }
}

void fill_slots(const Pool& pool, lq_layout layout, const judge::CheckpointTensors& checkpoint,
                const judge::WindowTensors& window) {
  const Context host;
  const Pool model(host, judge::public_geometry(checkpoint.geometry), kDistinctItems + 1, layout);
  const lq_pool_tensors tensors = model.tensors();
  for (int64_t item = 0; item < kDistinctItems; ++item) judge::write_slot(tensors, item + 1, checkpoint, window, item);
  const std::vector<SlotParts> from = slot_parts(tensors);
  const std::vector<SlotParts> to = slot_parts(pool.tensors());
  const auto slots = static_cast<size_t>(pool.tensors().hcnt.shape[0] - 1);
  for (size_t i = 0; i < to.size(); ++i) fill_items(to[i].first, from[i].first, to[i].bytes, kDistinctItems, slots);
}

}  // namespace leapquant::bench
