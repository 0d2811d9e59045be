// SPDX-License-Identifier: Apache-2.0
#include "bench/step_case.h"

#include <utility>

#include "judge/verify.h"

namespace leapquant::bench {
namespace {

constexpr uint64_t kSeed = 1;

int64_t gate_channels(const lq_geometry& geometry) { return judge::internal_geometry(geometry).gate_channels(); }

}  // namespace

const char* step_op_name(StepOp op) { return op == StepOp::kStep ? "step" : "cycle"; }

int64_t token_program_bytes(const lq_geometry& geometry) {
  const int64_t of_key_heads = 2 * 2 * geometry.key_dim * geometry.num_key_heads / geometry.num_heads;
  return of_key_heads + 2 * (geometry.value_dim + gate_channels(geometry) + 1);
}

int64_t step_program_bytes(const lq_geometry& geometry, int64_t fill) {
  const bool by_channel = geometry.gate == LQ_GATE_KDA;
  const int64_t keys = geometry.key_dim;
  const int64_t values = geometry.value_dim;
  const int64_t checkpoint = values * keys + 4 * (keys + values) + 2 * geometry.rank * (keys + values);
  const int64_t entry = 2 * (keys + values + (by_channel ? keys : 0));  // key, update, gate
  const int64_t decay = 4 * gate_channels(geometry);                    // what the checkpoint has seen
  const int64_t weights = 4 * (by_channel ? 1 : fill + 1);              // that change
  const int64_t window = fill * entry + 4 * geometry.window + decay + 4;
  const int64_t written = 2 * values + entry + decay + weights + 4;
  return checkpoint + window + token_program_bytes(geometry) + written;
}

int64_t step_cycle_bytes(const lq_geometry& geometry) {
  int64_t bytes = 0;
  for (int64_t fill = 0; fill < geometry.window; ++fill) bytes += step_program_bytes(geometry, fill);
  return bytes;
}

judge::StepInputs step_bench_inputs(const lq_geometry& geometry, int64_t items) {
  judge::StepRequest request;
  request.geometry = judge::internal_geometry(geometry);
  request.family = judge::StepFamily::kRandom;
  request.batch = items;
  request.seed = kSeed;
  Result<judge::StepInputs> inputs = judge::make_step_inputs(request);
  if (!inputs.ok()) throw Error(LQ_INVALID_ARGUMENT, inputs.status().message());
  return std::move(inputs.value());
}

}  // namespace leapquant::bench
