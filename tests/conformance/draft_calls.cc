// SPDX-License-Identifier: Apache-2.0
#include "draft_calls.h"

#include <utility>

namespace leapquant::conformance {

DraftArguments::DraftArguments(lq_device device, std::vector<int32_t> index_values, int32_t token_count,
                               const judge::StepInputs& tokens, const std::vector<float>& q0_values)
    : tokens_(tokens),
      index_values_(std::move(index_values)),
      mirrors_(device),
      token_count(token_count),
      accepted_values(index_values_.size(), 0),
      basis(q0_values),
      scratch_bytes(static_cast<size_t>(
                        draft_bytes(judge::public_geometry(tokens.geometry), std::ssize(index_values_), token_count)),
                    int8_t{-1}),
      output(static_cast<size_t>(tokens.programs() * tokens.geometry.value_dim), Bfloat16{0xFFFF}),
      indices(mirrors_.add(index_values_)),
      token(mirrored_token(mirrors_, judge::public_token(tokens_))),
      params(judge::public_params(tokens.gate)),
      scratch(mirrors_.add(tensor(scratch_bytes.data(), LQ_INT8, {std::ssize(scratch_bytes)}))),
      accepted(mirrors_.add(accepted_values)),
      q0(mirrors_.add(tensor(basis.data(), LQ_FLOAT32, {tokens.geometry.value_dim, tokens.geometry.rank}))),
      o(mirrors_.add(
          tensor(output.data(), LQ_BFLOAT16, {tokens.batch, tokens.geometry.num_heads, tokens.geometry.value_dim}))) {}

lq_status DraftArguments::enqueue_draft(const Pool& pool, void* stream) const {
  return lq_pool_draft(pool.get(), &indices, token_count, &token, &params, &scratch, &o, stream);
}

lq_status DraftArguments::enqueue_commit(const Pool& pool, void* stream) const {
  return lq_pool_commit(pool.get(), &indices, token_count, &scratch, &accepted, &q0, stream);
}

void DraftArguments::draft(const MirroredPool& pool) {
  pool.with_copies(mirrors_, [&] { return enqueue_draft(pool.pool()); });
}

void DraftArguments::commit(const MirroredPool& pool, const std::vector<int32_t>& accepted_tokens) {
  std::copy(accepted_tokens.begin(), accepted_tokens.end(), accepted_values.begin());
  pool.with_copies(mirrors_, [&] { return enqueue_commit(pool.pool()); });
}

DraftProgram DraftArguments::record(int64_t position, int64_t head) {
  const DraftView view{.base = reinterpret_cast<char*>(scratch_bytes.data()),
                       .layout = draft_layout(tokens_.geometry, token_count),
                       .num_heads = tokens_.geometry.num_heads};
  return view.at(position, head);
}

}  // namespace leapquant::conformance
