// SPDX-License-Identifier: Apache-2.0
#include "bench/decode_bench.h"

#include <algorithm>
#include <numeric>

#include "bench/dense_decode.h"
#include "bench/flush_case.h"
#include "bench/step_case.h"
#include "bench/stopwatch.h"
#include "judge/random.h"
#include "judge/verify.h"
#include "judge/verify_step.h"

namespace leapquant::bench {
namespace {

constexpr double kLongEnoughSeconds = 4.0;
constexpr size_t kFewestCycles = 5;
constexpr size_t kMostCycles = 60;
constexpr uint64_t kSeed = 1;

// One token of every sequence: normal queries, keys and values, gates between 0.2 and 1.
judge::StepInputs draw_tokens(const lq_geometry& geometry, int64_t batch) {
  judge::StepInputs inputs;
  inputs.geometry = judge::internal_geometry(geometry);
  inputs.batch = batch;
  inputs.token = judge::TokenTensors(inputs.geometry, batch);
  judge::RandomStream stream({kSeed, 0x57E9});
  judge::TokenTensors& token = inputs.token;
  for (auto* const tensor : {&token.qx, &token.kx, &token.vx, &token.a, &token.b}) {
    for (Bfloat16& value : *tensor) value = to_bfloat16(static_cast<float>(stream.normal()));
  }
  for (float& value : token.A_log) value = static_cast<float>(stream.uniform(-1, 1));
  for (float& value : token.dt_bias) value = static_cast<float>(stream.uniform(-5, -2));
  return inputs;
}

// Decodes from a pool whose slots 1, 2, ... hold the batch.
class PoolDecode {
 public:
  PoolDecode(const Context& context, const DecodeCase& decode_case, const judge::StepInputs& inputs)
      : pool_(context, decode_case.geometry, decode_case.batch + 1, decode_case.layout),
        slots_(static_cast<size_t>(decode_case.batch)),
        basis_(static_cast<size_t>(decode_case.geometry.value_dim) * decode_case.geometry.rank),
        output_(static_cast<size_t>(inputs.programs() * decode_case.geometry.value_dim)),
        token_(judge::public_token(inputs)) {
    std::iota(slots_.begin(), slots_.end(), 1);
    judge::RandomStream stream({kSeed, 0xBA515});
    for (float& value : basis_) value = static_cast<float>(stream.normal());
    const lq_geometry& g = decode_case.geometry;
    idx_ = tensor(slots_.data(), LQ_INT32, {decode_case.batch});
    q0_ = tensor(basis_.data(), LQ_FLOAT32, {g.value_dim, g.rank});
    o_ = tensor(output_.data(), LQ_BFLOAT16, {decode_case.batch, g.num_heads, g.value_dim});
    import_zeros(decode_case);
  }

  void step() const { pool_.step_flush_inplace(idx_, token_, q0_, o_); }

 private:
  // One sequence's states and offsets stand for all of them.
  void import_zeros(const DecodeCase& decode_case) const {
    const lq_geometry& g = decode_case.geometry;
    std::vector<float> states(static_cast<size_t>(g.num_heads) * g.value_dim * g.key_dim);
    std::vector<int32_t> offsets(static_cast<size_t>(g.num_heads));
    for (int32_t head = 0; head < g.num_heads; ++head) offsets[static_cast<size_t>(head)] = head % g.window;
    lq_tensor state = tensor(states.data(), LQ_FLOAT32, {decode_case.batch, g.num_heads, g.value_dim, g.key_dim});
    lq_tensor offset = tensor(offsets.data(), LQ_INT32, {decode_case.batch, g.num_heads});
    state.strides[0] = offset.strides[0] = 0;
    pool_.import_state(idx_, state, LQ_STATE_VK, &offset, q0_);
  }

  Pool pool_;
  std::vector<int32_t> slots_;
  std::vector<float> basis_;
  std::vector<Bfloat16> output_;
  lq_token token_;
  lq_tensor idx_, q0_, o_;
};

template <class Step>
double us_per_token(int32_t tokens, const Step& step) {
  const Stopwatch watch;
  for (int32_t t = 0; t < tokens; ++t) step();
  return watch.seconds() * 1e6 / tokens;
}

using Json = nlohmann::ordered_json;

Json result_json(const DecodeRecord& record, const DecodeResult& result) {
  const DecodeTiming& timing = result.timing;
  return {{"op", "step"},
          {"gate", result.decode_case.geometry.gate == LQ_GATE_KDA ? "kda" : "gdn"},
          {"batch", result.decode_case.batch},
          {"heads", result.decode_case.geometry.num_heads},
          {"key_heads", result.decode_case.geometry.num_key_heads},
          {"rank", result.decode_case.geometry.rank},
          {"layout", result.decode_case.layout == LQ_LAYOUT_PADDED ? "padded" : "compact"},
          {"threads", result.threads},
          {"cycle_tokens", result.decode_case.geometry.window},
          {"median_us", timing.us.median},
          {"min_us", timing.us.min},
          {"max_us", timing.us.max},
          {"bytes", timing.bytes},
          {"pool_bytes", timing.pool_bytes},
          {"fraction_of_read_limit", record.fraction_of_read_limit(result)},
          {"fp32_median_us", timing.dense_us.median},
          {"fp32_min_us", timing.dense_us.min},
          {"fp32_max_us", timing.dense_us.max},
          {"fp32_bytes", timing.dense_bytes},
          {"speedup", timing.speedup()}};
}

// A wrong request is to cost no time.
void check_runs(const DecodeRuns& runs) {
  for (const int32_t threads : runs.threads) {
    const Context context(runs.backend, threads);
    if (context.info().device.type != LQ_DEVICE_CPU) {
      throw Error(LQ_UNSUPPORTED, "bench --op step: expected a backend on host memory, got '" +
                                      std::string(context.info().backend) + "'");
    }
    for (const DecodeCase& decode_case : runs.cases) context.require(decode_case.geometry);
  }
}

}  // namespace

const Limits& DecodeRecord::limits_of(const DecodeResult& result) const {
  return std::find_if(limits.begin(), limits.end(), [&](const auto& entry) { return entry.first == result.threads; })
      ->second;
}

double DecodeRecord::fraction_of_read_limit(const DecodeResult& result) const {
  const double limit_us = static_cast<double>(result.timing.bytes) / limits_of(result).read_bytes_per_s * 1e6;
  return limit_us / result.timing.us.median;
}

int64_t decode_program_bytes(const lq_geometry& geometry) {
  return (step_cycle_bytes(geometry) + flush_program_bytes(geometry)) / geometry.window;
}

int64_t dense_program_bytes(const lq_geometry& geometry) {
  const int64_t elements = int64_t{geometry.value_dim} * geometry.key_dim;
  return 2 * 4 * elements + token_program_bytes(geometry) + 2 * geometry.value_dim;
}

DecodeTiming time_decode(const Context& context, const DecodeCase& decode_case) {
  const lq_geometry& geometry = decode_case.geometry;
  const judge::StepInputs inputs = draw_tokens(geometry, decode_case.batch);
  const PoolDecode pool(context, decode_case, inputs);
  DenseDecode dense(context.info().target, inputs.geometry.gate, context.info().threads, inputs.programs());
  std::vector<Bfloat16> output(static_cast<size_t>(inputs.programs() * geometry.value_dim));
  const TokenView token = inputs.token.view();
  const auto time_pool = [&] { return us_per_token(geometry.window, [&] { pool.step(); }); };
  const auto time_dense = [&] {
    return us_per_token(geometry.window, [&] { dense.step(token, geometry.num_heads, output.data()); });
  };
  time_pool();
  time_dense();
  std::vector<double> times;
  std::vector<double> dense_times;
  const Stopwatch total;
  while (times.size() < kFewestCycles || (times.size() < kMostCycles && total.seconds() < kLongEnoughSeconds)) {
    times.push_back(time_pool());
    dense_times.push_back(time_dense());
  }
  lq_pool_sizes sizes{};
  check(lq_pool_size(&geometry, decode_case.layout, decode_case.batch, &sizes));
  return {.us = spread_of(std::move(times)),
          .dense_us = spread_of(std::move(dense_times)),
          .bytes = inputs.programs() * decode_program_bytes(geometry),
          .dense_bytes = inputs.programs() * dense_program_bytes(geometry),
          .pool_bytes = decode_case.batch * (sizes.checkpoint_bytes_per_slot + sizes.window_bytes_per_slot)};
}

DecodeRecord run_decodes(const DecodeRuns& wanted, const std::function<void(double)>& progress) {
  DecodeRuns runs = wanted;
  if (runs.threads.empty()) runs.threads = {1, 0};
  check_runs(runs);
  DecodeRecord record;
  record.origin = record_origin();
  record.device = processor_name();
  const auto steps = static_cast<double>(runs.threads.size() * (runs.cases.size() + 1));
  double done = 0;
  for (const int32_t threads : runs.threads) {
    const Context context(runs.backend, threads);
    const lq_context_info info = context.info();
    record.backend = info.backend;
    record.target = info.target;
    record.limits.emplace_back(info.threads, measure_limits(info.target, info.threads));
    progress(++done / steps);
    for (const DecodeCase& decode_case : runs.cases) {
      record.results.push_back({decode_case, info.threads, time_decode(context, decode_case)});
      progress(++done / steps);
    }
  }
  return record;
}

nlohmann::ordered_json to_json(const DecodeRecord& record) {
  Json by_threads = Json::array();
  for (const auto& [threads, limits] : record.limits) {
    by_threads.push_back({{"threads", threads},
                          {"multiply_adds_per_s", limits.multiply_adds_per_s},
                          {"memory_bytes_per_s", limits.memory_bytes_per_s},
                          {"read_bytes_per_s", limits.read_bytes_per_s}});
  }
  Json results = Json::array();
  for (const DecodeResult& result : record.results) results.push_back(result_json(record, result));
  const int64_t cache = record.limits.empty() ? 0 : record.limits.front().second.last_level_cache_bytes;
  return {{"backend", record.backend},
          {"target", record.target},
          {"device", record.device},
          {"commit", record.origin.commit},
          {"date", record.origin.date},
          {"command", record.origin.command},
          {"limits", {{"by_threads", by_threads}, {"last_level_cache_bytes", cache}}},
          {"results", results}};
}

}  // namespace leapquant::bench
