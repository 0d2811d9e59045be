// SPDX-License-Identifier: Apache-2.0
#include "judge/verify_step.h"

#include "device/memory.h"
#include "judge/random.h"

namespace leapquant::judge {

lq_tensor public_entries(const StepInputs& inputs) { return program_tensor(inputs.h, LQ_INT32, inputs.geometry, {}); }

namespace {

// One number for each decay: [B, H, K], or [B, H] for GDN.
template <class T>
lq_tensor channel_tensor(const std::vector<T>& values, lq_dtype dtype, const Geometry& g) {
  return g.gate == Gate::kKda ? program_tensor(values, dtype, g, {g.key_dim}) : program_tensor(values, dtype, g, {});
}

}  // namespace

lq_token public_token(const StepInputs& inputs) {
  const Geometry& g = inputs.geometry;
  const TokenTensors& t = inputs.token;
  Geometry key_geometry = g;
  key_geometry.num_heads = g.num_key_heads;
  lq_token token{};
  token.qx = program_tensor(t.qx, LQ_BFLOAT16, key_geometry, {g.key_dim});
  token.kx = program_tensor(t.kx, LQ_BFLOAT16, key_geometry, {g.key_dim});
  token.vx = program_tensor(t.vx, LQ_BFLOAT16, g, {g.value_dim});
  token.b = program_tensor(t.b, LQ_BFLOAT16, g, {});
  if (inputs.gate.function == GateFunction::kGiven) {
    token.log_gate = channel_tensor(t.log_gate, LQ_FLOAT32, g);
    return token;
  }
  token.a = channel_tensor(t.a, LQ_BFLOAT16, g);
  token.A_log = tensor(const_cast<float*>(t.A_log.data()), LQ_FLOAT32, {g.num_heads});
  float* const bias = const_cast<float*>(t.dt_bias.data());
  token.dt_bias = g.gate == Gate::kKda ? tensor(bias, LQ_FLOAT32, {g.num_heads, g.key_dim})
                                       : tensor(bias, LQ_FLOAT32, {g.num_heads});
  return token;
}

lq_step_params public_params(const GateRule& rule) {
  lq_step_params params = LQ_STEP_PARAMS_DEFAULT;
  params.gate_function = static_cast<lq_gate_function>(rule.function);
  params.lower_bound = rule.lower_bound;
  return params;
}

lq_step_result public_result(const StepTensors& t) {
  const Geometry& g = t.geometry;
  const bool kda = g.gate == Gate::kKda;
  return {.o = program_tensor(t.o, LQ_BFLOAT16, g, {g.value_dim}),
          .k_row = program_tensor(t.k_row, LQ_BFLOAT16, g, {g.key_dim}),
          .u_row = program_tensor(t.u_row, LQ_BFLOAT16, g, {g.value_dim}),
          .g_row = kda ? program_tensor(t.g_row, LQ_FLOAT16, g, {g.key_dim}) : lq_tensor{},
          .w_new = program_tensor(t.w_new, LQ_FLOAT32, g, {g.window}),
          .pcum_new = kda ? program_tensor(t.pcum_new, LQ_FLOAT32, g, {g.key_dim}) : lq_tensor{},
          .p_new = kda ? lq_tensor{} : program_tensor(t.p_new, LQ_FLOAT32, g, {})};
}

Result<StepTensors> step(const Context& context, const StepInputs& inputs, lq_device place) {
  StepTensors result(inputs.geometry, inputs.batch);
  const lq_geometry geometry = public_geometry(inputs.geometry);
  device::Twins twins(place);
  const lq_checkpoint checkpoint = twins.twin_of(public_checkpoint(inputs.checkpoint));
  const lq_window window = twins.twin_of(public_window(inputs.window));
  const lq_tensor entries = twins.twin_of(public_entries(inputs));
  lq_token token = public_token(inputs);
  for (const auto member : kTokenMembers) token.*member = twins.twin_of(token.*member);
  const lq_step_result host = public_result(result);
  lq_step_result target = host;
  for (const auto member : kResultMembers) target.*member = twins.twin_of(host.*member);
  const lq_step_params params = public_params(inputs.gate);
  const lq_status status =
      lq_step(context.get(), &geometry, &checkpoint, &window, &entries, &token, &params, &target, nullptr);
  if (status != LQ_OK) return Status(static_cast<Code>(status), lq_last_error());
  for (const auto member : kResultMembers) twins.fetch(target.*member, host.*member);
  return result;
}

Result<StepJudgement> verify_step(const Context& context, const StepRequest& request) {
  StepRequest drawn = request;
  drawn.seed = hash_words({request.seed, static_cast<uint64_t>(request.batch)});
  const Result<StepInputs> inputs = make_step_inputs(drawn);
  LQ_RETURN_IF_ERROR(inputs.status());
  const Result<StepTensors> result = step(context, inputs.value(), context.info().device);
  LQ_RETURN_IF_ERROR(result.status());
  StepJudgement judgement = judge_step(inputs.value(), result.value(), request.threads);
  judgement.worst_seed = request.seed;
  return judgement;
}

}  // namespace leapquant::judge
