// SPDX-License-Identifier: Apache-2.0
//
// Calls of the step in the memory of the backend under test, for tests that edit and read the host's side (mirrors.h).
#pragma once

#include <cstdint>
#include <vector>

#include "backends.h"
#include "judge/verify_step.h"
#include "mirrors.h"

namespace leapquant::conformance {

judge::StepInputs step_inputs_of(judge::StepFamily family, const Geometry& geometry, int64_t batch,
                                 GateFunction gate = GateFunction::kSoftplus, uint64_t seed = 7);

// Steps a batch and judges every element.
void expect_within_bound(const Context& context, const judge::StepInputs& inputs);

// The items of a batch that stand at `items`, in that order, as a batch of their own. Tokens come along.
judge::StepInputs gather(const judge::StepInputs& inputs, const std::vector<int64_t>& items);

// A valid functional call, which a test may spoil.
class StepCall {
  Mirrors mirrors_;

 public:
  StepCall(const Context& context, const judge::StepInputs& valid);
  StepCall(const StepCall&) = delete;
  StepCall& operator=(const StepCall&) = delete;

  // Gives the backend what `inputs` and `output` hold, calls, waits, and brings all of it back.
  lq_status run(const Context& context);
  lq_status enqueue(const Context& context, void* stream = nullptr) const;
  void download() const { mirrors_.download(); }

  judge::StepInputs inputs;
  judge::StepTensors output;  // bytes of 0xFF to begin with
  lq_geometry geometry;
  lq_checkpoint checkpoint;
  lq_window window;
  lq_tensor h;
  lq_token token;
  lq_step_params params;
  lq_step_result result;
};

judge::StepTensors step_or_die(const Context& context, const judge::StepInputs& inputs);

// A token's tensors in the memory of a device.
lq_token mirrored_token(Mirrors& mirrors, lq_token token);

enum class TokenForm { kThreeTensors, kPacked };

// Queries, keys and values as rows [B, 2 H_k K + H V].
std::vector<Bfloat16> packed_rows(const judge::StepInputs& inputs);

// Arguments of an in-place step: position i takes token i of `inputs`, whose batch is the number of indices.
class StepArguments {
  judge::StepInputs tokens_;
  std::vector<int32_t> index_values_;
  std::vector<Bfloat16> mixed_;
  Mirrors mirrors_;

 public:
  StepArguments(lq_device device, std::vector<int32_t> index_values, const judge::StepInputs& inputs,
                TokenForm form = TokenForm::kThreeTensors);
  StepArguments(const StepArguments&) = delete;
  StepArguments& operator=(const StepArguments&) = delete;

  // The calls alone, and with all copies of pool and arguments around them.
  lq_status enqueue(const Pool& pool, void* stream = nullptr) const;
  lq_status enqueue_flush(const Pool& pool, const lq_tensor& q0, void* stream = nullptr) const;
  void step(const MirroredPool& pool);
  void step_flush(const MirroredPool& pool, const lq_tensor& q0);

  // Other contents of the same length, in the same memory.
  void set_indices(const std::vector<int32_t>& indices);
  void download() const { mirrors_.download(); }

  std::vector<Bfloat16> output;  // [n, H, V], bytes of 0xFF to begin with
  lq_tensor indices;
  lq_token token;
  lq_step_params params;
  lq_tensor o;
};

// Puts item `item` of `inputs` into a slot on the host's side, its counters included.
void fill_slot(const MirroredPool& pool, int64_t slot, const judge::StepInputs& inputs, int64_t item);

// Puts program `n` of a functional step where an in-place step must leave it.
void append_program(const MirroredPool& pool, int64_t slot, int64_t head, const judge::StepInputs& inputs,
                    const judge::StepTensors& result, int64_t n);

}  // namespace leapquant::conformance
