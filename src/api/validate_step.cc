// SPDX-License-Identifier: Apache-2.0
//
// The boundary of the step: options, token, results.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "api/program_check.h"
#include "api/step_check.h"
#include "api/tensor_check.h"
#include "api/validate.h"

namespace leapquant::api {
namespace {

constexpr const char* kMixedChoice = "beside 'mixed'";
constexpr const char* kGivenChoice = "with a gate that is given";
constexpr const char* kComputedChoice = "with a gate that is computed";

// The first version's options: every caller knows these.
constexpr size_t kSmallestParams = offsetof(lq_step_params, flags) + sizeof(lq_step_params::flags);
constexpr size_t kLargestParams = 4096;

// Options of a newer header are fine as long as what this library does not know is zero.
Result<lq_step_params> known_params(const lq_step_params* params) {
  lq_step_params known = LQ_STEP_PARAMS_DEFAULT;
  if (params == nullptr) return known;
  if (params->size < kSmallestParams || params->size > kLargestParams) {
    return invalid_argument(
        fmt::format("params: size: expected sizeof(lq_step_params) = {}, got {}", sizeof(known), params->size));
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(params);
  const bool newer = std::any_of(bytes + std::min<size_t>(params->size, sizeof(known)), bytes + params->size,
                                 [](unsigned char byte) { return byte != 0; });
  if (newer) return unsupported("params: this version of the library does not know all members that are set");
  std::copy_n(bytes, std::min<size_t>(params->size, sizeof(known)), reinterpret_cast<unsigned char*>(&known));
  return known;
}

Result<GateRule> to_gate_rule(const lq_step_params* params) {
  const Result<lq_step_params> known = known_params(params);
  if (!known.ok()) return known.status();
  const lq_step_params& p = known.value();
  if (p.flags != 0) return invalid_argument(fmt::format("params: unknown flags {:#x}", p.flags));
  const int function = static_cast<int>(p.gate_function);
  if (function < LQ_GATE_SOFTPLUS || function > LQ_GATE_GIVEN) {
    return invalid_argument(
        fmt::format("params: gate_function: expected 0 (softplus), 1 (bounded) or 2 (given), got {}", function));
  }
  if (function == LQ_GATE_BOUNDED && !(std::isfinite(p.lower_bound) && p.lower_bound < 0)) {
    return invalid_argument(
        fmt::format("params: lower_bound: expected a finite number below 0, got {}", p.lower_bound));
  }
  return GateRule{.function = static_cast<GateFunction>(function), .lower_bound = p.lower_bound};
}

template <class T>
Strided<const T> read_only(const TensorView& tensor) {
  return {static_cast<const T*>(tensor.data), tensor.strides[0], tensor.strides[1]};
}

// Query, key and value from one packed row per sequence.
void check_mixed(Checker& checker, const lq_token& token, const Geometry& geometry, int64_t batch, TokenView& view) {
  const int64_t key_row = int64_t{geometry.num_key_heads} * geometry.key_dim;
  const int64_t value_row = int64_t{geometry.num_heads} * geometry.value_dim;
  const TensorView mixed = checker.tensor("mixed", token.mixed, DType::kBfloat16, {batch, 2 * key_row + value_row}, 1);
  checker.absent("qx", token.qx, kMixedChoice);
  checker.absent("kx", token.kx, kMixedChoice);
  checker.absent("vx", token.vx, kMixedChoice);
  const auto* const row = static_cast<const Bfloat16*>(mixed.data);
  if (row == nullptr) return;
  view.query = {row, mixed.strides[0], geometry.key_dim};
  view.key = {row + key_row, mixed.strides[0], geometry.key_dim};
  view.value = {row + 2 * key_row, mixed.strides[0], geometry.value_dim};
}

// One number for each decay of each program's token.
TensorView check_channels(Checker& checker, const char* name, const lq_tensor& tensor, DType dtype,
                          const Geometry& geometry, int64_t batch) {
  const int64_t h = geometry.num_heads;
  return geometry.gate == Gate::kKda ? checker.tensor(name, tensor, dtype, {batch, h, geometry.key_dim}, 2)
                                     : checker.numbers(name, tensor, dtype, {batch, h}, 2);
}

void check_gate(Checker& checker, const lq_token& token, const Geometry& geometry, const GateRule& rule, int64_t batch,
                TokenView& view) {
  const int64_t h = geometry.num_heads;
  if (rule.function == GateFunction::kGiven) {
    view.log_gate =
        read_only<float>(check_channels(checker, "log_gate", token.log_gate, DType::kFloat32, geometry, batch));
    checker.absent("a", token.a, kGivenChoice);
    checker.absent("A_log", token.A_log, kGivenChoice);
    checker.absent("dt_bias", token.dt_bias, kGivenChoice);
    return;
  }
  view.gate_input = read_only<Bfloat16>(check_channels(checker, "a", token.a, DType::kBfloat16, geometry, batch));
  const TensorView log_rate = checker.tensor("A_log", token.A_log, DType::kFloat32, {h}, 0);
  view.log_rate = {static_cast<const float*>(log_rate.data), 0, 1};
  const TensorView gate_bias = geometry.gate == Gate::kKda
                                   ? checker.tensor("dt_bias", token.dt_bias, DType::kFloat32, {h, geometry.key_dim}, 0)
                                   : checker.numbers("dt_bias", token.dt_bias, DType::kFloat32, {h}, 0);
  view.gate_bias = {static_cast<const float*>(gate_bias.data), 0, geometry.gate_channels()};
  checker.absent("log_gate", token.log_gate, kComputedChoice);
}

TokenView check_token(Checker& checker, const lq_token& token, const Geometry& geometry, const GateRule& rule,
                      int64_t batch) {
  const int64_t h = geometry.num_heads;
  TokenView view;
  view.group_size = geometry.group_size();
  if (token.mixed.dtype != LQ_DTYPE_NONE) {
    check_mixed(checker, token, geometry, batch, view);
  } else {
    const int64_t key_heads = geometry.num_key_heads;
    view.query =
        read_only<Bfloat16>(checker.tensor("qx", token.qx, DType::kBfloat16, {batch, key_heads, geometry.key_dim}, 2));
    view.key =
        read_only<Bfloat16>(checker.tensor("kx", token.kx, DType::kBfloat16, {batch, key_heads, geometry.key_dim}, 2));
    view.value =
        read_only<Bfloat16>(checker.tensor("vx", token.vx, DType::kBfloat16, {batch, h, geometry.value_dim}, 2));
  }
  check_gate(checker, token, geometry, rule, batch, view);
  view.beta_input = read_only<Bfloat16>(checker.tensor("b", token.b, DType::kBfloat16, {batch, h}, 2));
  return view;
}

StepTargets check_step_result(Checker& checker, const lq_step_result& result, const Geometry& geometry, int64_t batch) {
  const int64_t h = geometry.num_heads;
  const int64_t k = geometry.key_dim;
  const int64_t v = geometry.value_dim;
  StepTargets targets{
      .output = strided<Bfloat16>(checker.tensor("o", result.o, DType::kBfloat16, {batch, h, v}, 0)),
      .key = strided<Bfloat16>(checker.tensor("k_row", result.k_row, DType::kBfloat16, {batch, h, k}, 0)),
      .update = strided<Bfloat16>(checker.tensor("u_row", result.u_row, DType::kBfloat16, {batch, h, v}, 0)),
      .gate = {},
      .weight = strided<float>(checker.tensor("w_new", result.w_new, DType::kFloat32, {batch, h, geometry.window}, 0)),
      .log_decay = {},
      .decay = {}};
  if (geometry.gate == Gate::kKda) {
    targets.gate = strided<Half>(checker.tensor("g_row", result.g_row, DType::kFloat16, {batch, h, k}, 0));
    targets.log_decay = strided<float>(checker.tensor("pcum_new", result.pcum_new, DType::kFloat32, {batch, h, k}, 0));
    checker.absent("p_new", result.p_new, geometry.gate);
  } else {
    targets.decay = strided<float>(checker.numbers("p_new", result.p_new, DType::kFloat32, {batch, h}, 0));
    checker.absent("g_row", result.g_row, geometry.gate);
    checker.absent("pcum_new", result.pcum_new, geometry.gate);
  }
  return targets;
}

bool any_null(const StepRequest& request) {
  return request.checkpoint == nullptr || request.window == nullptr || request.entries == nullptr ||
         request.token == nullptr || request.result == nullptr;
}

// What a step writes overlaps neither the pool nor what it reads.
Status check_written(const Pool& pool, const Named& written, const TensorView& indices, std::span<const Named> inputs) {
  LQ_RETURN_IF_ERROR(check_disjoint(written, "", {"idx", indices}, ""));
  LQ_RETURN_IF_ERROR(check_outside_pool(pool, written));
  for (const Named& input : inputs) LQ_RETURN_IF_ERROR(check_disjoint(written, "", input, ""));
  return {};
}

}  // namespace

Result<StepPlan> plan_step(const Backend& backend, const StepRequest& request) {
  const Result<Geometry> geometry = to_geometry(request.geometry);
  if (!geometry.ok()) return geometry.status();
  LQ_RETURN_IF_ERROR(backend.supports(geometry.value()));
  if (any_null(request)) {
    return invalid_argument("step: expected checkpoint, window, h, token and result, got NULL for one of them");
  }
  const Result<GateRule> rule = to_gate_rule(request.params);
  if (!rule.ok()) return rule.status();
  const Result<int64_t> batch = batch_of(request.checkpoint->codes);
  if (!batch.ok()) return batch.status();

  const Device device = backend.state().device;
  Checker inputs(device);
  Checker results(device, "result.");
  const int64_t b = batch.value();
  const StepPlan plan{.geometry = geometry.value(),
                      .batch = b,
                      .checkpoint = check_checkpoint(inputs, *request.checkpoint, geometry.value(), b, true),
                      .window = check_window(inputs, *request.window, geometry.value(), b),
                      .token = check_token(inputs, *request.token, geometry.value(), rule.value(), b),
                      .gate = rule.value(),
                      .target = check_step_result(results, *request.result, geometry.value(), b),
                      .entries = read_only<int32_t>(
                          inputs.tensor("h", *request.entries, DType::kInt32, {b, geometry.value().num_heads}, 2)),
                      .in_place = false,
                      .pool = {}};
  LQ_RETURN_IF_ERROR(inputs.status());
  LQ_RETURN_IF_ERROR(results.status());
  LQ_RETURN_IF_ERROR(check_results(inputs.seen(), results.seen()));
  LQ_RETURN_IF_ERROR(
      check_entry_counts("h", "expected 0 to {} occupied entries", plan.entries, plan.batch, plan.geometry, device));
  return plan;
}

Result<StepPlan> plan_slot_steps(const Pool& pool, const InplaceStepRequest& request, int32_t tokens,
                                 const Named* scratch) {
  const Result<TensorView> indices = to_indices(pool, request.idx);
  if (!indices.ok()) return indices.status();
  if (request.token == nullptr || request.output == nullptr) {
    return invalid_argument("step: expected token and o, got NULL for one of them");
  }
  const Result<GateRule> rule = to_gate_rule(request.params);
  if (!rule.ok()) return rule.status();

  const Geometry& geometry = pool.geometry();
  const int64_t batch = indices.value().shape[0];
  const int64_t rows = batch * tokens;
  Checker inputs(pool.backend().state().device);
  Checker results(pool.backend().state().device);
  StepPlan plan = pool.step_plan(static_cast<const int32_t*>(indices.value().data), batch);
  plan.gate = rule.value();
  plan.token = check_token(inputs, *request.token, geometry, rule.value(), rows);
  plan.target.output = strided<Bfloat16>(
      results.tensor("o", *request.output, DType::kBfloat16, {rows, geometry.num_heads, geometry.value_dim}, 0));
  LQ_RETURN_IF_ERROR(inputs.status());
  LQ_RETURN_IF_ERROR(results.status());

  const Named& output = results.seen()[0];
  LQ_RETURN_IF_ERROR(check_written(pool, output, indices.value(), inputs.seen()));
  if (scratch != nullptr) {
    LQ_RETURN_IF_ERROR(check_disjoint(*scratch, "", output, ""));
    LQ_RETURN_IF_ERROR(check_written(pool, *scratch, indices.value(), inputs.seen()));
  }
  for (const Named& input : inputs.seen()) LQ_RETURN_IF_ERROR(check_outside_pool(pool, input));
  return plan;
}

Result<StepPlan> plan_step_inplace(const Pool& pool, const InplaceStepRequest& request) {
  return plan_slot_steps(pool, request, 1, nullptr);
}

Result<StepFlushPlans> plan_step_flush_inplace(const Pool& pool, const InplaceStepRequest& request,
                                               const lq_tensor* start_basis) {
  const Result<StepPlan> step = plan_step_inplace(pool, request);
  if (!step.ok()) return step.status();
  const Result<FlushPlan> flush = plan_flush_inplace(pool, request.idx, start_basis);
  if (!flush.ok()) return flush.status();
  // The flush reads q0 after the step has written o. Both are known to be contiguous.
  const Device device = pool.backend().state().device;
  const Named written{"o", contiguous_view(request.output->data, DType::kBfloat16, device, {request.output->shape, 3})};
  const Named basis{"q0", contiguous_view(start_basis->data, DType::kFloat32, device, {start_basis->shape, 2})};
  LQ_RETURN_IF_ERROR(check_disjoint(written, "", basis, ""));
  return StepFlushPlans{step.value(), flush.value()};
}

}  // namespace leapquant::api
