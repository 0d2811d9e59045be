// SPDX-License-Identifier: Apache-2.0
//
// Drafts and commits in the memory of the backend under test (see mirrors.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/draft_layout.h"
#include "step_calls.h"

namespace leapquant::conformance {

// Arguments of a draft of T tokens and of its commit: row i T + t of `tokens` is token t of position i.
class DraftArguments {
  judge::StepInputs tokens_;
  std::vector<int32_t> index_values_;
  Mirrors mirrors_;

 public:
  DraftArguments(lq_device device, std::vector<int32_t> index_values, int32_t token_count,
                 const judge::StepInputs& tokens, const std::vector<float>& q0);
  DraftArguments(const DraftArguments&) = delete;
  DraftArguments& operator=(const DraftArguments&) = delete;

  lq_status enqueue_draft(const Pool& pool, void* stream = nullptr) const;
  lq_status enqueue_commit(const Pool& pool, void* stream = nullptr) const;
  void upload() const { mirrors_.upload(); }
  void download() const { mirrors_.download(); }
  // With all copies of pool and arguments around the call.
  void draft(const MirroredPool& pool);
  void commit(const MirroredPool& pool, const std::vector<int32_t>& accepted_tokens);

  DraftProgram record(int64_t position, int64_t head);

  int32_t token_count;
  std::vector<int32_t> accepted_values;  // [n]
  std::vector<float> basis;              // [V, R]
  std::vector<int8_t> scratch_bytes;     // of 0xFF to begin with
  std::vector<Bfloat16> output;          // [n T, H, V], bytes of 0xFF to begin with
  lq_tensor indices;
  lq_token token;
  lq_step_params params;
  lq_tensor scratch;
  lq_tensor accepted;
  lq_tensor q0;
  lq_tensor o;
};

}  // namespace leapquant::conformance
