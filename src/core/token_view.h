// SPDX-License-Identifier: Apache-2.0
//
// What a step reads of one token, beside checkpoint and window, and the rows that it makes. As in core/program_view.h:
// grids of (item, head), strides in elements, host and device code.
#pragma once

#include <cstdint>

#include "core/numerics.h"
#include "core/program_view.h"

namespace leapquant {

// How the log-gate of a key channel comes about.
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
  const Bfloat16* gate_input;  // [K]
  const float* log_rate;       // [1]
  const float* gate_bias;      // [K]
  const float* log_gate;       // [K]
};

// Tokens of [items, H] programs; log_rate and gate_bias are the same for all items: their item stride is 0.
struct TokenView {
  Strided<const Bfloat16> query;
  Strided<const Bfloat16> key;
  Strided<const Bfloat16> value;
  Strided<const Bfloat16> beta_input;
  Strided<const Bfloat16> gate_input;
  Strided<const float> log_rate;
  Strided<const float> gate_bias;
  Strided<const float> log_gate;

  TokenProgram at(int64_t item, int64_t head) const {
    const auto optional = [&](const auto& tensor) { return tensor.base == nullptr ? nullptr : tensor.at(item, head); };
    return {query.at(item, head), key.at(item, head), value.at(item, head), beta_input.at(item, head),
            optional(gate_input), optional(log_rate), optional(gate_bias),  optional(log_gate)};
  }
};

// What the step of one program writes. In place, key, update and gate are rows of the window and log_decay is the
// window's own.
struct StepRows {
  Bfloat16* output;  // [V]
  Bfloat16* key;     // [K]
  Bfloat16* update;  // [V]
  Half* gate;        // [K]
  float* log_decay;  // [K]
  float* log_gate;   // [K] the token's part of log_decay; null where nobody asks for it
};

}  // namespace leapquant
