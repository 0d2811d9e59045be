// SPDX-License-Identifier: Apache-2.0
#include "bench/flush_bench.h"

#include <algorithm>
#include <numeric>

#include "bench/stopwatch.h"
#include "judge/families.h"
#include "judge/pool_io.h"
#include "judge/random.h"
#include "judge/verify.h"

namespace leapquant::bench {
namespace {

constexpr double kLongEnoughSeconds = 0.4;
constexpr size_t kFewestRuns = 9;
constexpr size_t kMostRuns = 200;
constexpr int kWarmups = 2;
constexpr int64_t kDistinctItems = 4;  // the pool repeats the programs of this many sequences
constexpr uint64_t kSeed = 1;

int64_t elements(const lq_tensor& tensor) {
  return std::accumulate(tensor.shape, tensor.shape + tensor.ndim, int64_t{1}, std::multiplies<>());
}

// What a flush changes and the next one needs: put back from here.
class WindowBackup {
 public:
  explicit WindowBackup(const lq_pool_tensors& pool) : pool_(pool) {
    save(pool.w, weights_);
    save(pool.gbuf, gates_);
    save(pool.pcum, log_decays_);
  }

  void restore() const {
    std::copy(weights_.begin(), weights_.end(), static_cast<char*>(pool_.w.data));
    std::copy(gates_.begin(), gates_.end(), static_cast<char*>(pool_.gbuf.data));
    std::copy(log_decays_.begin(), log_decays_.end(), static_cast<char*>(pool_.pcum.data));
  }

 private:
  static void save(const lq_tensor& tensor, std::vector<char>& copy) {
    const int64_t bytes = elements(tensor) * (tensor.dtype == LQ_FLOAT16 ? 2 : 4);
    copy.assign(static_cast<const char*>(tensor.data), static_cast<const char*>(tensor.data) + bytes);
  }

  lq_pool_tensors pool_;
  std::vector<char> weights_;
  std::vector<char> gates_;
  std::vector<char> log_decays_;
};

// Sets the counters; returns how many programs are due.
int64_t set_counters(const lq_tensor& hcnt, Due due, int32_t window) {
  const int64_t heads = hcnt.shape[1];
  auto* counters = static_cast<int32_t*>(hcnt.data);
  int64_t count = 0;
  for (int64_t n = heads; n < elements(hcnt); ++n) {  // slot 0 is reserved
    const bool drawn = judge::hash_words({kSeed, static_cast<uint64_t>(n)}) % 16 == 0;
    const bool is_due = due == Due::kAll || (due == Due::kSixteenth && drawn);
    counters[n] = is_due ? window : 3;
    count += is_due ? 1 : 0;
  }
  return count;
}

judge::FlushInputs bench_inputs(const lq_geometry& geometry) {
  judge::FamilyRequest request;
  request.geometry = {.gate = static_cast<Gate>(geometry.gate),
                      .num_heads = geometry.num_heads,
                      .num_key_heads = geometry.num_key_heads,
                      .value_dim = geometry.value_dim,
                      .key_dim = geometry.key_dim,
                      .window = geometry.window,
                      .rank = geometry.rank,
                      .code_bits = geometry.code_bits};
  request.family = judge::Family::kRandom;
  request.batch = kDistinctItems;
  request.seed = kSeed;
  Result<judge::FlushInputs> inputs = judge::make_inputs(request);
  if (!inputs.ok()) throw Error(LQ_INVALID_ARGUMENT, inputs.status().message());
  return std::move(inputs.value());
}

}  // namespace

const char* due_name(Due due) {
  switch (due) {
    case Due::kAll:
      return "all";
    case Due::kSixteenth:
      return "1/16";
    case Due::kNone:
      return "none";
  }
  return "unknown";
}

int64_t flush_program_bytes(const lq_geometry& geometry) {
  const int64_t keys = geometry.key_dim;
  const int64_t values = geometry.value_dim;
  const int64_t window = geometry.window;
  const int64_t checkpoint = values * keys + 4 * (keys + values) + 2 * geometry.rank * (keys + values);
  const int64_t reset = 4 * window + 2 * window * keys + 4 * keys;  // w, gbuf, pcum: read, then written
  return 2 * checkpoint + 2 * window * (keys + values) + 2 * reset;
}

int64_t flush_program_multiply_adds(const lq_geometry& geometry) {
  const int64_t elements_of_state = int64_t{geometry.value_dim} * geometry.key_dim;
  return elements_of_state * (geometry.window + 5 * int64_t{geometry.rank});
}

FlushTiming time_flush(const Context& context, const FlushCase& flush_case) {
  const lq_geometry& geometry = flush_case.geometry;
  const judge::FlushInputs inputs = bench_inputs(geometry);
  const Pool pool(context, geometry, flush_case.batch + 1, flush_case.layout);
  const lq_pool_tensors tensors = pool.tensors();
  for (int64_t slot = 1; slot <= flush_case.batch; ++slot) {
    judge::write_slot(tensors, slot, inputs, slot % kDistinctItems);
  }
  const WindowBackup backup(tensors);

  FlushTiming timing;
  timing.due_programs = set_counters(tensors.hcnt, flush_case.due, geometry.window);
  timing.bytes = timing.due_programs * flush_program_bytes(geometry);
  lq_pool_sizes sizes{};
  check(lq_pool_size(&geometry, flush_case.layout, flush_case.batch, &sizes));
  timing.pool_bytes = flush_case.batch * (sizes.checkpoint_bytes_per_slot + sizes.window_bytes_per_slot);

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
  std::sort(times.begin(), times.end());
  timing.median_us = times[times.size() / 2];
  timing.min_us = times.front();
  timing.max_us = times.back();
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
