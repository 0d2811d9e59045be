// SPDX-License-Identifier: Apache-2.0
#include "judge/verify.h"

#include "device/memory.h"
#include "judge/random.h"

namespace leapquant::judge {
lq_geometry public_geometry(const Geometry& geometry) {
  return {static_cast<lq_gate>(geometry.gate),
          geometry.num_heads,
          geometry.num_key_heads,
          geometry.value_dim,
          geometry.key_dim,
          geometry.window,
          geometry.rank,
          geometry.code_bits};
}

Geometry internal_geometry(const lq_geometry& geometry) {
  return {.gate = static_cast<Gate>(geometry.gate),
          .num_heads = geometry.num_heads,
          .num_key_heads = geometry.num_key_heads,
          .value_dim = geometry.value_dim,
          .key_dim = geometry.key_dim,
          .window = geometry.window,
          .rank = geometry.rank,
          .code_bits = geometry.code_bits};
}

lq_checkpoint public_checkpoint(const CheckpointTensors& tensors) {
  const Geometry& g = tensors.geometry;
  return {.codes = program_tensor(tensors.codes, LQ_INT8, g, {g.value_dim, g.key_dim}),
          .s_k = program_tensor(tensors.s_k, LQ_FLOAT32, g, {g.key_dim}),
          .s_v = program_tensor(tensors.s_v, LQ_FLOAT32, g, {g.value_dim}),
          .u = program_tensor(tensors.u, LQ_FLOAT16, g, {g.rank, g.key_dim}),
          .q = program_tensor(tensors.q, LQ_FLOAT16, g, {g.rank, g.value_dim})};
}

lq_window public_window(const WindowTensors& tensors) {
  const Geometry& g = tensors.geometry;
  const bool kda = g.gate == Gate::kKda;
  return {.kbuf = program_tensor(tensors.kbuf, LQ_BFLOAT16, g, {g.window, g.key_dim}),
          .ubuf = program_tensor(tensors.ubuf, LQ_BFLOAT16, g, {g.window, g.value_dim}),
          .w = program_tensor(tensors.w, LQ_FLOAT32, g, {g.window}),
          .gbuf = kda ? program_tensor(tensors.gbuf, LQ_FLOAT16, g, {g.window, g.key_dim}) : lq_tensor{},
          .pcum = kda ? program_tensor(tensors.pcum, LQ_FLOAT32, g, {g.key_dim}) : lq_tensor{},
          .p = kda ? lq_tensor{} : program_tensor(tensors.p, LQ_FLOAT32, g, {})};
}

lq_tensor public_start_basis(const FlushInputs& inputs) {
  return tensor(const_cast<float*>(inputs.q0.data()), LQ_FLOAT32, {inputs.geometry.value_dim, inputs.geometry.rank});
}

Result<CheckpointTensors> flush(const Context& context, const FlushInputs& inputs, lq_device place) {
  CheckpointTensors result(inputs.geometry, inputs.batch);
  const lq_geometry geometry = public_geometry(inputs.geometry);
  device::Twins twins(place);
  const lq_checkpoint source = twins.twin_of(public_checkpoint(inputs.checkpoint));
  const lq_window window = twins.twin_of(public_window(inputs.window));
  const lq_tensor start_basis = twins.twin_of(public_start_basis(inputs));
  const lq_checkpoint target = twins.twin_of(public_checkpoint(result));
  const lq_status status =
      lq_flush(context.get(), &geometry, &source, &window, &start_basis, &target, LQ_FLUSH_DEFAULT, nullptr);
  if (status != LQ_OK) return Status(static_cast<Code>(status), lq_last_error());
  twins.fetch(target, public_checkpoint(result));
  return result;
}

Result<Judgement> verify_flush(const Context& context, const FamilyRequest& request) {
  FamilyRequest drawn = request;
  drawn.seed = hash_words({request.seed, static_cast<uint64_t>(request.batch)});
  const Result<FlushInputs> inputs = make_inputs(drawn);
  LQ_RETURN_IF_ERROR(inputs.status());
  const Result<CheckpointTensors> result = flush(context, inputs.value(), context.info().device);
  LQ_RETURN_IF_ERROR(result.status());
  Judgement judgement = judge_flush(inputs.value(), result.value().view(), request.threads);
  judgement.worst_seed = request.seed;
  return judgement;
}

}  // namespace leapquant::judge
