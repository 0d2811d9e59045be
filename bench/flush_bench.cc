// SPDX-License-Identifier: Apache-2.0
#include "bench/flush_bench.h"

#include <numeric>
#include <utility>
#include <vector>

#include "bench/pool_backup.h"
#include "bench/stopwatch.h"
#include "judge/pool_io.h"
#include "judge/verify.h"

namespace leapquant::bench {
namespace {

constexpr double kLongEnoughSeconds = 0.4;
constexpr size_t kFewestRuns = 9;
constexpr size_t kMostRuns = 200;
constexpr int kWarmups = 2;
constexpr int64_t kDistinctItems = 4;  // the pool repeats the programs of this many sequences

}  // namespace

int64_t pool_bytes(const FlushCase& flush_case) {
  lq_pool_sizes sizes{};
  check(lq_pool_size(&flush_case.geometry, flush_case.layout, flush_case.batch, &sizes));
  return flush_case.batch * (sizes.checkpoint_bytes_per_slot + sizes.window_bytes_per_slot);
}

FlushTiming time_flush(const Context& context, const FlushCase& flush_case) {
  const lq_geometry& geometry = flush_case.geometry;
  const judge::FlushInputs inputs = bench_inputs(geometry, kDistinctItems);
  const Pool pool(context, geometry, flush_case.batch + 1, flush_case.layout);
  const lq_pool_tensors tensors = pool.tensors();
  for (int64_t slot = 1; slot <= flush_case.batch; ++slot) {
    judge::write_slot(tensors, slot, inputs, slot % kDistinctItems);
  }
  const PoolBackup backup(changed_by_flush(tensors));

  FlushTiming timing;
  const auto programs = static_cast<size_t>(tensors.hcnt.shape[0] * tensors.hcnt.shape[1]);
  timing.due_programs = draw_counters(geometry, flush_case.due, {static_cast<int32_t*>(tensors.hcnt.data), programs});
  timing.bytes = timing.due_programs * flush_program_bytes(geometry);
  timing.pool_bytes = pool_bytes(flush_case);

  std::vector<int32_t> slots(static_cast<size_t>(flush_case.batch));
  std::iota(slots.begin(), slots.end(), 1);
  const lq_tensor idx = tensor(slots.data(), LQ_INT32, {flush_case.batch});
  const lq_tensor q0 = judge::public_start_basis(inputs);

  std::vector<double> times;
  const Stopwatch total;
  for (int run = -kWarmups;
       times.size() < kFewestRuns || (times.size() < kMostRuns && total.seconds() < kLongEnoughSeconds); ++run) {
    backup.restore();
    const Stopwatch watch;
    pool.flush_inplace(idx, q0);
    if (run >= 0) times.push_back(watch.seconds() * 1e6);
  }
  timing.us = spread_of(std::move(times));
  return timing;
}

FlushLimit flush_limit(const FlushCase& flush_case, const FlushTiming& timing, const Limits& limits) {
  const auto multiply_adds =
      static_cast<double>(timing.due_programs * flush_program_multiply_adds(flush_case.geometry));
  FlushLimit limit{.multiply_add_us = multiply_adds / limits.multiply_adds_per_s * 1e6};
  if (timing.pool_bytes > limits.last_level_cache_bytes) {
    limit.memory_us = static_cast<double>(timing.bytes) / limits.memory_bytes_per_s * 1e6;
  }
  return limit;
}

}  // namespace leapquant::bench
