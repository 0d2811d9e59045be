// SPDX-License-Identifier: Apache-2.0
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/gpu_bench.h"
#include "bench/cuda/pool_fill.h"
#include "bench/cuda/timed_graph.h"
#include "bench/flush_case.h"
#include "bench/pool_backup.h"
#include "device/cuda_check.h"
#include "device/memory.h"
#include "judge/random.h"
#include "judge/verify.h"

namespace leapquant::bench {
namespace {

using device::check_cuda;
using device::CudaMemory;
using device::tensor_bytes;

// Tokens that the items of a batch take turns in: at each round of a cycle an item has the next one, so that a window
// holds entries of different tokens.
constexpr int64_t kDistinctTokens = 64;

// A tensor [items, ...] whose items repeat the kDistinctTokens of `host`.
CudaMemory repeated(int32_t device, const std::vector<Bfloat16>& host, int64_t items) {
  const size_t item_bytes = host.size() * sizeof(Bfloat16) / kDistinctTokens;
  CudaMemory memory(device, item_bytes * static_cast<size_t>(items));
  fill_items(memory.data(), host.data(), item_bytes, kDistinctTokens, static_cast<size_t>(items));
  return memory;
}

// Query, key and value of each item in one row.
std::vector<Bfloat16> packed(const judge::TokenTensors& token) {
  std::vector<Bfloat16> rows;
  for (int64_t item = 0; item < kDistinctTokens; ++item) {
    for (const std::vector<Bfloat16>* tensor : {&token.qx, &token.kx, &token.vx}) {
      const auto size = static_cast<std::ptrdiff_t>(tensor->size()) / kDistinctTokens;
      rows.insert(rows.end(), tensor->begin() + item * size, tensor->begin() + (item + 1) * size);
    }
  }
  return rows;
}

// The arguments of the calls: a batch of the tensors for each set, and an item more for each further round.
class StepArguments {
 public:
  StepArguments(lq_device place, const StepCase& step_case, const judge::TokenTensors& token,
                const std::vector<float>& start_basis)
      : place_(place),
        geometry_(step_case.geometry),
        batch_(step_case.batch),
        mixed_(repeated(place.index, packed(token), token_items())),
        gate_input_(repeated(place.index, token.a, token_items())),
        beta_input_(repeated(place.index, token.b, token_items())),
        log_rate_(uploaded(place.index, token.A_log)),
        gate_bias_(uploaded(place.index, token.dt_bias)),
        output_(place.index, static_cast<size_t>(kAllSets * batch_ * value_row()) * sizeof(Bfloat16)),
        basis_(uploaded(place.index, start_basis)),
        indices_(uploaded(place.index, slots(kAllSets * batch_))) {}

  lq_tensor indices(int set) const { return part(indices_, LQ_INT32, sizeof(int32_t), set, 0, {batch_}); }
  lq_tensor output(int set) const {
    return part(output_, LQ_BFLOAT16, sizeof(Bfloat16), set, 0, {batch_, geometry_.num_heads, geometry_.value_dim});
  }
  lq_tensor start_basis() const {
    return tensor(basis_.data(), LQ_FLOAT32, {geometry_.value_dim, geometry_.rank}, place_);
  }
  lq_token token(int set, int round) const {
    lq_token token{};
    const int64_t heads = geometry_.num_heads;
    const int64_t key_row = int64_t{geometry_.num_key_heads} * geometry_.key_dim;
    const int64_t channels = judge::internal_geometry(geometry_).gate_channels();
    token.mixed = part(mixed_, LQ_BFLOAT16, sizeof(Bfloat16), set, round, {batch_, 2 * key_row + value_row()});
    token.a = part(gate_input_, LQ_BFLOAT16, sizeof(Bfloat16), set, round, {batch_, heads, channels});
    token.b = part(beta_input_, LQ_BFLOAT16, sizeof(Bfloat16), set, round, {batch_, heads});
    token.A_log = tensor(log_rate_.data(), LQ_FLOAT32, {heads}, place_);
    token.dt_bias = tensor(gate_bias_.data(), LQ_FLOAT32, {heads, channels}, place_);
    return token;
  }

 private:
  static std::vector<int32_t> slots(int64_t count) {
    std::vector<int32_t> result(static_cast<size_t>(count));
    std::iota(result.begin(), result.end(), 1);
    return result;
  }
  int64_t value_row() const { return int64_t{geometry_.num_heads} * geometry_.value_dim; }
  int64_t token_items() const { return kAllSets * batch_ + geometry_.window - 1; }
  // The batch of one set, `later` items on.
  lq_tensor part(const CudaMemory& memory, lq_dtype dtype, size_t element, int set, int later,
                 std::initializer_list<int64_t> shape) const {
    const int64_t elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const int64_t first = set * elements + later * (elements / batch_);
    return tensor(static_cast<char*>(memory.data()) + static_cast<size_t>(first) * element, dtype, shape, place_);
  }

  lq_device place_;
  lq_geometry geometry_;
  int64_t batch_;
  CudaMemory mixed_;
  CudaMemory gate_input_;
  CudaMemory beta_input_;
  CudaMemory log_rate_;
  CudaMemory gate_bias_;
  CudaMemory output_;
  CudaMemory basis_;
  CudaMemory indices_;
};

// Counters of all slots: the case's fill, or in a cycle one that is drawn, program by program.
std::vector<int32_t> drawn_counters(const StepCase& step_case, int64_t programs) {
  std::vector<int32_t> counters(static_cast<size_t>(programs), step_case.fill);
  if (step_case.op == StepOp::kStep) return counters;
  for (size_t n = 0; n < counters.size(); ++n) {
    counters[n] =
        static_cast<int32_t>(judge::hash_words({uint64_t{n}}) % static_cast<uint64_t>(step_case.geometry.window));
  }
  return counters;
}

// A step that did something else has no time worth reporting: the last replay must have counted every timed program on,
// by one or by a window, and met no trouble.
void check_stepped(const Pool& pool, const StepCase& step_case, const std::vector<int32_t>& before) {
  std::vector<int32_t> after(before.size());
  check_cuda(cudaMemcpy(after.data(), pool.tensors().hcnt.data, after.size() * sizeof(int32_t), cudaMemcpyDeviceToHost),
             "reading counters");
  const int32_t heads = step_case.geometry.num_heads;
  const auto end = static_cast<size_t>((kSets * step_case.batch + 1) * heads);
  int64_t wrong = 0;
  for (auto n = static_cast<size_t>(heads); n < end; ++n) {
    const int32_t cycled = before[n] == 0 ? step_case.geometry.window : before[n];
    wrong += after[n] == (step_case.op == StepOp::kStep ? before[n] + 1 : cycled) ? 0 : 1;
  }
  if (wrong == 0 && pool.read_errors().flags == 0) return;
  throw Error(LQ_INTERNAL, "bench: the timed steps left " + std::to_string(wrong) + " counters wrong, or met trouble");
}

}  // namespace

StepTiming time_step_on_gpu(const Context& context, const StepCase& step_case) {
  const lq_geometry& geometry = step_case.geometry;
  const lq_device place = context.info().device;
  const judge::StepInputs inputs = step_bench_inputs(geometry, kDistinctItems);
  const Pool pool(context, geometry, kAllSets * step_case.batch + 1, step_case.layout);
  fill_slots(pool, step_case.layout, inputs.checkpoint, inputs.window);
  const lq_pool_tensors tensors = pool.tensors();
  const std::vector<int32_t> counters = drawn_counters(step_case, tensors.hcnt.shape[0] * tensors.hcnt.shape[1]);
  check_cuda(cudaMemcpy(tensors.hcnt.data, counters.data(), tensor_bytes(tensors.hcnt), cudaMemcpyHostToDevice),
             "filling a pool");
  const StepArguments arguments(place, step_case, step_bench_inputs(geometry, kDistinctTokens).token,
                                bench_inputs(geometry, 1).q0);
  const bool cycle = step_case.op == StepOp::kCycle;
  const PoolBackup backup(cycle ? changed_by_cycle(tensors) : changed_by_step(tensors));
  const auto call = [&](int set, int round, cudaStream_t stream) {
    const lq_tensor idx = arguments.indices(set);
    const lq_tensor o = arguments.output(set);
    const lq_token token = arguments.token(set, round);
    if (cycle) {
      pool.step_flush_inplace(idx, token, arguments.start_basis(), o, kStepDefaults, stream);
    } else {
      pool.step_inplace(idx, token, o, kStepDefaults, stream);
    }
  };
  TimedGraph graph(place.index, call, cycle ? geometry.window : 1);

  StepTiming timing;
  timing.us = graph.time([&](cudaStream_t stream) { backup.restore(stream); });
  check_stepped(pool, step_case, counters);
  timing.programs = step_case.batch * geometry.num_heads;
  timing.step_bytes = timing.programs * (cycle ? step_cycle_bytes(geometry) / geometry.window
                                               : step_program_bytes(geometry, step_case.fill));
  if (cycle) timing.flush_bytes = timing.programs * flush_program_bytes(geometry) / geometry.window;
  return timing;
}

}  // namespace leapquant::bench
