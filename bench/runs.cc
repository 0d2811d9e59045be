// SPDX-License-Identifier: Apache-2.0
#include "bench/runs.h"

#include <map>

#if LQ_WITH_CUDA
#include "bench/cuda/gpu_bench.h"
#endif

namespace leapquant::bench {
namespace {

using Report = std::function<void(double)>;

// Microseconds of the scalar reference for one program.
double time_reference(const lq_geometry& geometry) {
  FlushCase flush_case;
  flush_case.geometry = geometry;
  flush_case.batch = 1;
  const FlushTiming timing = time_flush(Context("ref", 1), flush_case);
  return timing.us.median / static_cast<double>(timing.due_programs);
}

// A wrong request is to cost no time: everything that it names is looked at before anything is measured.
void check_runs(const FlushRuns& runs) {
  for (const int32_t threads : runs.threads) {
    const Context context(runs.backend, threads);
    for (const FlushCase& flush_case : runs.cases) context.require(flush_case.geometry);
  }
}

void run_on_host(const FlushRuns& runs, const Report& progress, FlushRecord& record) {
  std::map<int32_t, double> reference_us;  // by rank: a program's work doesn't depend on the heads
  for (const FlushCase& flush_case : runs.cases) reference_us[flush_case.geometry.rank] = 0;
  const double steps = static_cast<double>(runs.threads.size() * (runs.cases.size() + 1) + reference_us.size());
  double done = 0;
  const auto advance = [&] { progress(++done / steps); };
  record.device = processor_name();
  for (auto& [rank, microseconds] : reference_us) {
    lq_geometry geometry = runs.cases.front().geometry;
    geometry.rank = rank;
    microseconds = time_reference(geometry);
    advance();
  }
  for (const int32_t wanted : runs.threads) {
    const Context context(runs.backend, wanted);
    const lq_context_info info = context.info();
    const Limits limits = measure_limits(info.target, info.threads);
    record.limits.emplace_back(info.threads, limits);
    advance();
    for (const FlushCase& flush_case : runs.cases) {
      const FlushTiming timing = time_flush(context, flush_case);
      record.results.push_back({.flush_case = flush_case,
                                .threads = info.threads,
                                .timing = timing,
                                .limit = flush_limit(flush_case, timing, limits),
                                .reference_us_per_program = reference_us[flush_case.geometry.rank]});
      advance();
    }
  }
}

#if LQ_WITH_CUDA

void describe(const Context& context, RecordHead& record) {
  record.gpu = describe_gpu(context.info().device.index);
  record.device = record.gpu->name;
}

FlushResult run_on_gpu(const Context& context, const FlushCase& flush_case) {
  FlushResult result{.flush_case = flush_case, .timing = time_flush_on_gpu(context, flush_case)};
  result.stream.emplace();
  if (result.timing.bytes > 0) *result.stream = time_stream_on_gpu(context.info().device.index, result.timing.bytes);
  result.limit.memory_us = result.stream->us();
  return result;
}

void run_on_gpu(const FlushRuns& runs, const Report& progress, FlushRecord& record) {
  const Context context(runs.backend);
  describe(context, record);
  for (const FlushCase& flush_case : runs.cases) {
    record.results.push_back(run_on_gpu(context, flush_case));
    progress(static_cast<double>(record.results.size()) / static_cast<double>(runs.cases.size()));
  }
}

// A step is held against a stream of its bytes that is only read; of the flushes in a cycle, each token has its share
// of a stream that copies.
StepResult run_on_gpu(const Context& context, const StepCase& step_case) {
  const int32_t device = context.info().device.index;
  StepResult result{.step_case = step_case, .timing = time_step_on_gpu(context, step_case)};
  result.step_stream_us = time_read_on_gpu(device, result.timing.step_bytes);
  if (step_case.op == StepOp::kCycle) {
    const int64_t window = step_case.geometry.window;
    result.flush_stream_us =
        time_stream_on_gpu(device, result.timing.flush_bytes * window).us() / static_cast<double>(window);
  }
  return result;
}

void run_on_gpu(const Context& context, const StepRuns& runs, const Report& progress, StepRecord& record) {
  describe(context, record);
  for (const StepCase& step_case : runs.cases) {
    record.results.push_back(run_on_gpu(context, step_case));
    progress(static_cast<double>(record.results.size()) / static_cast<double>(runs.cases.size()));
  }
}

#else

// Unreachable: such a build has no backend with tensors on a device.
void run_on_gpu(const FlushRuns& /*runs*/, const Report& /*progress*/, FlushRecord& /*record*/) {}
void run_on_gpu(const Context& /*context*/, const StepRuns& /*runs*/, const Report& /*progress*/,
                StepRecord& /*record*/) {}

#endif

}  // namespace

FlushRecord run_flushes(const FlushRuns& wanted, const Report& progress) {
  FlushRecord record{begin_record(), {}, {}};
  FlushRuns runs = wanted;
  bool on_gpu = false;
  {
    const Context context(runs.backend);
    record.backend = context.info().backend;
    record.target = context.info().target;
    on_gpu = context.info().device.type == LQ_DEVICE_CUDA;
  }
  if (on_gpu && !runs.threads.empty()) {
    throw Error(LQ_INVALID_ARGUMENT, "threads: backend '" + record.backend + "' runs on a GPU and has none to choose");
  }
  if (runs.threads.empty()) runs.threads = on_gpu ? std::vector<int32_t>{0} : std::vector<int32_t>{1, 0};
  check_runs(runs);
  if (on_gpu) {
    run_on_gpu(runs, progress, record);
  } else {
    run_on_host(runs, progress, record);
  }
  return record;
}

StepRecord run_steps(const StepRuns& runs, const Report& progress) {
  StepRecord record{begin_record(), {}};
  const Context context(runs.backend);
  record.backend = context.info().backend;
  record.target = context.info().target;
  if (context.info().device.type != LQ_DEVICE_CUDA) {
    throw Error(LQ_INVALID_ARGUMENT, "bench: steps are timed on a GPU, backend '" + record.backend + "' is none");
  }
  for (const StepCase& step_case : runs.cases) context.require(step_case.geometry);
  run_on_gpu(context, runs, progress, record);
  return record;
}

}  // namespace leapquant::bench
