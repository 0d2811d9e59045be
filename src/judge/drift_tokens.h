// SPDX-License-Identifier: Apache-2.0
//
// The tokens and gates of the drift measurement.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/token_view.h"
#include "judge/random.h"
#include "judge/trajectory.h"

namespace leapquant::judge {

inline constexpr int64_t kDriftDim = 128;    // K and V
inline constexpr int64_t kProfileHeads = 4;  // of each profile

// Decay per token is exp(-A softplus(a + dt_bias)), A and dt_bias drawn as such layers begin their training: A uniform,
// dt_bias so that softplus(dt_bias) is uniform on a logarithmic scale. GDN takes the first channel's gate. Queries,
// keys and values are silu of normal numbers, as behind the convolution of such layers, so that keys have a direction
// in common.
struct DriftDraw {
  const char* name;
  const char* description;
  double lowest_rate, highest_rate;  // A
  double lowest_step, highest_step;  // softplus(dt_bias)
  double beta_input;                 // mean of beta's pre-activation
  double outlier;                    // factor of four key channels and four value channels
};
inline constexpr std::array<DriftDraw, 5> kDriftDraws = {{
    {"initialised", "gates as layers begin their training: A in [1, 16], steps in [0.001, 0.1]", 1, 16, 1e-3, 1e-1, 0,
     1},
    {"fast", "short memory: A = 16, steps in [0.03, 0.1]", 16, 16, 3e-2, 1e-1, 0, 1},
    {"slow", "long memory: A = 1, steps in [0.00001, 0.001]", 1, 1, 1e-5, 1e-3, 0, 1},
    {"faint", "as slow, and small updates: beta near 0.01", 1, 1, 1e-5, 1e-3, -4.5, 1},
    {"outliers", "as initialised, four key and four value channels 16 times larger", 1, 16, 1e-3, 1e-1, 0, 16},
}};

// The tokens of one head, one after another.
class DriftTokens {
 public:
  virtual ~DriftTokens() = default;
  // The next token. Its pointers stay valid until the call after.
  virtual TokenProgram next() = 0;
};

// Head `head` of a draw.
std::unique_ptr<DriftTokens> drawn_tokens(const DriftDraw& draw, uint64_t seed, int64_t head);

// Layer and head of a recorded trajectory, which outlives it: its sequences one after another, over and over.
std::unique_ptr<DriftTokens> recorded_tokens(const Trajectory& trajectory, int64_t layer, int64_t head);

}  // namespace leapquant::judge
