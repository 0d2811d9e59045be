// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/gpu_bench.h"
#include "bench/cuda/pool_fill.h"
#include "bench/cuda/timed_graph.h"
#include "bench/pool_backup.h"
#include "device/cuda_check.h"
#include "device/memory.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;
using device::CudaMemory;
using device::tensor_bytes;

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
  fill_slots(pool, flush_case.layout, inputs.checkpoint, inputs.window);
  const DuePrograms due = set_counters(pool.tensors().hcnt, flush_case);
  const lq_pool_tensors tensors = pool.tensors();
  const PoolBackup backup(changed_by_flush(tensors));

  std::vector<int32_t> slots(static_cast<size_t>(kAllSets * flush_case.batch));
  std::iota(slots.begin(), slots.end(), 1);
  const CudaMemory indices = uploaded(place.index, slots);
  const CudaMemory basis = uploaded(place.index, inputs.q0);
  const lq_tensor q0 = tensor(basis.data(), LQ_FLOAT32, {geometry.value_dim, geometry.rank}, place);
  TimedGraph graph(place.index, [&](int set, int /*round*/, cudaStream_t stream) {
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
