// SPDX-License-Identifier: Apache-2.0
//
// What a step reads of one token, beside checkpoint and window, and the rows that it makes. As in core/program_view.h:
// grids of (item, head), strides in elements. C is the number of a token's decays: K, or 1 for GDN
// (Geometry::gate_channels).
#pragma once

#include <cstdint>

#include "core/numerics.h"
#include "core/program_view.h"

namespace leapquant {

// How a log-gate comes about.
enum class GateFunction : int32_t {
  kSoftplus = 0,  // -exp(log_rate) softplus(gate_input + gate_bias)
  kBounded = 1,   // lower_bound sigmoid(exp(log_rate) (gate_input + gate_bias))
  kGiven = 2,     // log_gate as it stands
};

struct GateRule {
  GateFunction function = GateFunction::kSoftplus;
  float lower_bound = -5.0f;  // kBounded
};

// One program's token. Members that the gate rule does not need are null.
struct TokenProgram {
  const Bfloat16* query;       // [K]
  const Bfloat16* key;         // [K]
  const Bfloat16* value;       // [V]
  const Bfloat16* beta_input;  // [1]
  const Bfloat16* gate_input;  // [C]
  const float* log_rate;       // [1]
  const float* gate_bias;      // [C]
  const float* log_gate;       // [C]
};

// Tokens of [items, H] programs; log_rate and gate_bias are the same for all items: their item stride is 0. Heads of
// query and key are key heads.
struct TokenView {
  Strided<const Bfloat16> query;
  Strided<const Bfloat16> key;
  Strided<const Bfloat16> value;
  Strided<const Bfloat16> beta_input;
  Strided<const Bfloat16> gate_input;
  Strided<const float> log_rate;
  Strided<const float> gate_bias;
  Strided<const float> log_gate;
  int64_t group_size = 1;  // heads that share a key head

  TokenProgram at(int64_t item, int64_t head) const {
    const auto optional = [&](const auto& tensor) { return tensor.base == nullptr ? nullptr : tensor.at(item, head); };
    const int64_t key_head = head / group_size;
    return {query.at(item, key_head), key.at(item, key_head), value.at(item, head), beta_input.at(item, head),
            optional(gate_input),     optional(log_rate),     optional(gate_bias),  optional(log_gate)};
  }
};

// What the step of one program writes, row by row. In place, key, update and gate are rows of the window and log_decay
// is the window's own. Members of the other gate are null.
struct StepRows {
  Bfloat16* output;  // [V]
  Bfloat16* key;     // [K]
  Bfloat16* update;  // [V]
  Half* gate;        // [K] KDA
  float* log_decay;  // [K] KDA
  float* log_gate;   // [K] KDA: the token's part of log_decay; null where nobody asks for it
};

// What else the step of one program tells.
struct StepOutcome {
  bool finite;        // no NaN or Inf in output, update and what the checkpoint has seen
  float token_decay;  // GDN: the token's gate, by which the window decays (core/append_weight.h)
};

}  // namespace leapquant
