// SPDX-License-Identifier: Apache-2.0
#include "step_calls.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "judge/program_copy.h"

namespace leapquant::conformance {
namespace {

lq_step_result mirrored_result(Mirrors& mirrors, lq_step_result result) {
  for (const auto member : judge::kResultMembers) {
    if ((result.*member).dtype != LQ_DTYPE_NONE) result.*member = mirrors.add(result.*member);
  }
  return result;
}

// The token with its three rows in one.
lq_token packed_token(lq_token token, std::vector<Bfloat16>& mixed, int64_t batch) {
  const int64_t row = batch == 0 ? 2 * token.qx.shape[1] * token.qx.shape[2] + token.vx.shape[1] * token.vx.shape[2]
                                 : static_cast<int64_t>(mixed.size()) / batch;
  token.qx = token.kx = token.vx = {};
  token.mixed = tensor(mixed.data(), LQ_BFLOAT16, {batch, row});
  return token;
}

}  // namespace

lq_token mirrored_token(Mirrors& mirrors, lq_token token) {
  for (const auto member : judge::kTokenMembers) {
    if ((token.*member).dtype != LQ_DTYPE_NONE) token.*member = mirrors.add(token.*member);
  }
  return token;
}

judge::StepInputs step_inputs_of(judge::StepFamily family, const Geometry& geometry, int64_t batch, GateFunction gate,
                                 uint64_t seed) {
  judge::StepRequest request;
  request.geometry = geometry;
  request.family = family;
  request.batch = batch;
  request.seed = seed;
  request.gate.function = gate;
  Result<judge::StepInputs> inputs = judge::make_step_inputs(request);
  if (!inputs.ok()) throw std::runtime_error(inputs.status().message());
  return std::move(inputs.value());
}

judge::StepInputs gather(const judge::StepInputs& inputs, const std::vector<int64_t>& items) {
  judge::StepInputs result = inputs;
  const int64_t batch = inputs.batch;
  const auto take = [&](auto& tensor, const auto& from) { tensor = gathered(from, items, batch); };
  result.batch = std::ssize(items);
  result.checkpoint = gathered(inputs.checkpoint, items, batch);
  result.window = gathered(inputs.window, items, batch);
  take(result.h, inputs.h);
  take(result.token.qx, inputs.token.qx);
  take(result.token.kx, inputs.token.kx);
  take(result.token.vx, inputs.token.vx);
  take(result.token.a, inputs.token.a);
  take(result.token.b, inputs.token.b);
  take(result.token.log_gate, inputs.token.log_gate);
  return result;
}

StepCall::StepCall(const Context& context, const judge::StepInputs& valid)
    : mirrors_(context.info().device),
      inputs(valid),
      output(unwritten<judge::StepTensors>(valid.geometry, valid.batch)),
      geometry(judge::public_geometry(valid.geometry)),
      checkpoint(mirrored(mirrors_, inputs.checkpoint)),
      window(mirrored(mirrors_, inputs.window)),
      h(mirrors_.add(judge::public_entries(inputs))),
      token(mirrored_token(mirrors_, judge::public_token(inputs))),
      params(judge::public_params(valid.gate)),
      result(mirrored_result(mirrors_, judge::public_result(output))) {}

lq_status StepCall::enqueue(const Context& context, void* stream) const {
  return lq_step(context.get(), &geometry, &checkpoint, &window, &h, &token, &params, &result, stream);
}

lq_status StepCall::run(const Context& context) {
  return mirrors_.with_copies([&] { return enqueue(context); });
}

judge::StepTensors step_or_die(const Context& context, const judge::StepInputs& inputs) {
  StepCall call(context, inputs);
  check(call.run(context));
  return std::move(call.output);
}

void expect_within_bound(const Context& context, const judge::StepInputs& inputs) {
  SCOPED_TRACE(to_string(inputs.geometry) + " key heads " + std::to_string(inputs.geometry.num_key_heads) + " batch " +
               std::to_string(inputs.batch) + " " + judge::gate_function_name(inputs.gate.function));
  const judge::StepJudgement judged = judge::judge_step(inputs, step_or_die(context, inputs), 0);
  EXPECT_EQ(judged.programs, inputs.programs());
  EXPECT_EQ(judged.over, 0) << "program " << judged.worst_program << ", " << judged.elements_over << " elements";
  EXPECT_TRUE(judged.finite);
}

std::vector<Bfloat16> packed_rows(const judge::StepInputs& inputs) {
  std::vector<Bfloat16> rows;
  for (int64_t item = 0; item < inputs.batch; ++item) {
    append_item(inputs.token.qx, item, inputs.batch, rows);
    append_item(inputs.token.kx, item, inputs.batch, rows);
    append_item(inputs.token.vx, item, inputs.batch, rows);
  }
  return rows;
}

StepArguments::StepArguments(lq_device device, std::vector<int32_t> index_values, const judge::StepInputs& inputs,
                             TokenForm form)
    : tokens_(inputs),
      index_values_(std::move(index_values)),
      mixed_(packed_rows(inputs)),
      mirrors_(device),
      output(static_cast<size_t>(inputs.programs() * inputs.geometry.value_dim), Bfloat16{0xFFFF}),
      indices(mirrors_.add(index_values_)),
      params(judge::public_params(inputs.gate)),
      o(mirrors_.add(
          tensor(output.data(), LQ_BFLOAT16, {inputs.batch, inputs.geometry.num_heads, inputs.geometry.value_dim}))) {
  const lq_token three = judge::public_token(tokens_);
  token = mirrored_token(mirrors_, form == TokenForm::kPacked ? packed_token(three, mixed_, inputs.batch) : three);
}

lq_status StepArguments::enqueue(const Pool& pool, void* stream) const {
  return lq_step_inplace(pool.get(), &indices, &token, &params, &o, stream);
}

lq_status StepArguments::enqueue_flush(const Pool& pool, const lq_tensor& q0, void* stream) const {
  return lq_step_flush_inplace(pool.get(), &indices, &token, &params, &q0, &o, stream);
}

void StepArguments::set_indices(const std::vector<int32_t>& values) {
  std::copy(values.begin(), values.end(), index_values_.begin());
  mirrors_.upload();
}

void StepArguments::step(const MirroredPool& pool) {
  pool.with_copies(mirrors_, [&] { return enqueue(pool.pool()); });
}

void StepArguments::step_flush(const MirroredPool& pool, const lq_tensor& q0) {
  pool.with_copies(mirrors_, [&] { return enqueue_flush(pool.pool(), q0); });
}

void fill_slot(const MirroredPool& pool, int64_t slot, const judge::StepInputs& inputs, int64_t item) {
  judge::write_slot(pool.host(), slot, inputs.checkpoint, inputs.window, item);
  for (int64_t head = 0; head < inputs.geometry.num_heads; ++head) {
    pool.counter(slot, head) = inputs.h[item * inputs.geometry.num_heads + head];
  }
}

void append_program(const MirroredPool& pool, int64_t slot, int64_t head, const judge::StepInputs& inputs,
                    const judge::StepTensors& result, int64_t n) {
  const Geometry& g = inputs.geometry;
  const int64_t entries = inputs.h[n];
  const WindowProgram window = judge::slot_window(pool.host(), slot, head);
  std::copy_n(result.k_row.begin() + n * g.key_dim, g.key_dim, window.window_key + entries * g.key_dim);
  std::copy_n(result.u_row.begin() + n * g.value_dim, g.value_dim, window.window_update + entries * g.value_dim);
  std::copy_n(result.w_new.begin() + n * g.window, g.window, window.window_weight);
  if (g.gate == Gate::kGdn) {
    *window.decay = result.p_new[static_cast<size_t>(n)];
  } else {
    std::copy_n(result.g_row.begin() + n * g.key_dim, g.key_dim, window.window_gate + entries * g.key_dim);
    std::copy_n(result.pcum_new.begin() + n * g.key_dim, g.key_dim, window.log_decay);
  }
  pool.counter(slot, head) = static_cast<int32_t>(entries + 1);
}

}  // namespace leapquant::conformance
