// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/gpu_bench.h"
#include "bench/cuda/timed_graph.h"
#include "device/cuda_check.h"
#include "device/memory.h"
#include "judge/pool_io.h"
#include "judge/verify.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;
using device::CudaMemory;
using device::tensor_bytes;

constexpr int64_t kDistinctItems = kSets;  // the pool repeats the programs of this many sequences

template <class T>
CudaMemory uploaded(int32_t device, const std::vector<T>& values) {
  CudaMemory memory(device, values.size() * sizeof(T));
  memory.upload(values.data());
  return memory;
}

// One tensor's part of the slots from slot 1 on, one after another.
struct SlotParts {
  char* first;
  size_t bytes;  // of a slot
};

// The parts of all tensors that a flush reads, apart from the counters.
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

// Fills `slots` slots with kDistinctItems of the host in turn: the first go up, and then what is filled is copied
// behind itself.
void fill(const SlotParts& to, const SlotParts& from, size_t slots) {
  size_t filled = std::min<size_t>(slots, kDistinctItems);
  check_cuda(cudaMemcpy(to.first, from.first, filled * from.bytes, cudaMemcpyHostToDevice), "filling a pool");
  while (filled < slots) {
    const size_t next = std::min(filled, slots - filled);
    check_cuda(cudaMemcpy(to.first + filled * to.bytes, to.first, next * to.bytes, cudaMemcpyDeviceToDevice),
               "filling a pool");
    filled += next;
  }
}

void fill_slots(const Pool& pool, lq_layout layout, const judge::FlushInputs& inputs) {
  const Context host;
  const Pool model(host, judge::public_geometry(inputs.geometry), kDistinctItems + 1, layout);
  const lq_pool_tensors tensors = model.tensors();
  for (int64_t item = 0; item < kDistinctItems; ++item) judge::write_slot(tensors, item + 1, inputs, item);
  const std::vector<SlotParts> from = slot_parts(tensors);
  const std::vector<SlotParts> to = slot_parts(pool.tensors());
  const auto slots = static_cast<size_t>(pool.tensors().hcnt.shape[0] - 1);
  for (size_t i = 0; i < to.size(); ++i) fill(to[i], from[i], slots);
}

// How many programs are due: in all sets, and in those whose time is measured, which come first.
struct DuePrograms {
  int64_t all;
  int64_t timed;
};

DuePrograms set_counters(const lq_tensor& hcnt, const FlushCase& flush_case) {
  std::vector<int32_t> counters(tensor_bytes(hcnt) / sizeof(int32_t));
  const int64_t all = draw_counters(flush_case.geometry, flush_case.due, counters);
  check_cuda(cudaMemcpy(hcnt.data, counters.data(), tensor_bytes(hcnt), cudaMemcpyHostToDevice), "filling a pool");
  const auto warm = counters.end() - flush_case.batch * flush_case.geometry.num_heads;
  return {all, all - std::count(warm, counters.end(), flush_case.geometry.window)};
}

// What a flush changes and the next one needs: put back from here.
class WindowBackup {
 public:
  WindowBackup(int32_t device, const lq_pool_tensors& pool) {
    for (const lq_tensor* tensor : {&pool.w, &pool.gbuf, &pool.pcum, &pool.p}) {
      if (tensor->data == nullptr) continue;  // of the other gate
      CudaMemory copy(device, tensor_bytes(*tensor));
      check_cuda(cudaMemcpy(copy.data(), tensor->data, copy.bytes(), cudaMemcpyDeviceToDevice), "saving windows");
      saved_.emplace_back(tensor->data, std::move(copy));
    }
  }

  void restore(cudaStream_t stream) const {
    for (const auto& [tensor, copy] : saved_) {
      check_cuda(cudaMemcpyAsync(tensor, copy.data(), copy.bytes(), cudaMemcpyDeviceToDevice, stream),
                 "restoring windows");
    }
  }

 private:
  std::vector<std::pair<void*, CudaMemory>> saved_;
};

// A flush that did something else has no time worth reporting: the last replay must have emptied the windows of the due
// programs and no others. No window is empty before it.
void check_flushed(const Pool& pool, int64_t due) {
  const lq_tensor w = pool.tensors().w;
  std::vector<float> weights(tensor_bytes(w) / sizeof(float));
  check_cuda(cudaMemcpy(weights.data(), w.data, tensor_bytes(w), cudaMemcpyDeviceToHost), "reading windows");
  const int64_t window = w.shape[2];
  int64_t empty = 0;
  for (auto entry = weights.begin() + w.strides[0]; entry != weights.end(); entry += window) {  // slot 0 is reserved
    empty += std::all_of(entry, entry + window, [](float weight) { return weight == 0; }) ? 1 : 0;
  }
  if (empty == due && pool.read_errors().flags == 0) return;
  throw Error(LQ_INTERNAL, "bench: the timed flushes emptied " + std::to_string(empty) + " windows of " +
                               std::to_string(due) + " that were due, or met trouble");
}

}  // namespace

FlushTiming time_flush_on_gpu(const Context& context, const FlushCase& flush_case) {
  const lq_geometry& geometry = flush_case.geometry;
  const lq_device place = context.info().device;
  const judge::FlushInputs inputs = bench_inputs(geometry, kDistinctItems);
  const Pool pool(context, geometry, kAllSets * flush_case.batch + 1, flush_case.layout);
  fill_slots(pool, flush_case.layout, inputs);
  const DuePrograms due = set_counters(pool.tensors().hcnt, flush_case);
  const WindowBackup backup(place.index, pool.tensors());

  std::vector<int32_t> slots(static_cast<size_t>(kAllSets * flush_case.batch));
  std::iota(slots.begin(), slots.end(), 1);
  const CudaMemory indices = uploaded(place.index, slots);
  const CudaMemory basis = uploaded(place.index, inputs.q0);
  const lq_tensor q0 = tensor(basis.data(), LQ_FLOAT32, {geometry.value_dim, geometry.rank}, place);
  TimedGraph graph(place.index, [&](int set, cudaStream_t stream) {
    auto* const first = static_cast<int32_t*>(indices.data()) + set * flush_case.batch;
    pool.flush_inplace(tensor(first, LQ_INT32, {flush_case.batch}, place), q0, stream);
  });

  FlushTiming timing;
  timing.us = graph.time([&](cudaStream_t stream) { backup.restore(stream); });
  check_flushed(pool, due.all);
  timing.due_programs = (due.timed + kSets / 2) / kSets;
  timing.bytes = due.timed * flush_program_bytes(geometry) / kSets;
  timing.pool_bytes = pool_bytes(flush_case);
  return timing;
}

}  // namespace leapquant::bench
