// SPDX-License-Identifier: Apache-2.0
//
// The recurrence on a dense state, one token at a time: T1 to T4 of docs/format.md with nothing buffered.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/geometry.h"
#include "core/token_view.h"
#include "ref/step.h"

namespace leapquant::judge {

template <class Real>
class DenseRecurrence {
 public:
  explicit DenseRecurrence(const Geometry& geometry)
      : geometry_(geometry),
        state_(static_cast<size_t>(geometry.state_elements())),
        output_(static_cast<size_t>(geometry.value_dim)),
        no_log_decay_(static_cast<size_t>(geometry.key_dim)) {}

  // The output [V] of the next token.
  const std::vector<Real>& step(const TokenProgram& token);

  std::span<Real> state() { return state_; }  // [V, K]; may be rounded between tokens

 private:
  // What the gates of a state that is always up to date start from.
  WindowProgram up_to_date() {
    WindowProgram window{};
    window.log_decay = no_log_decay_.data();
    window.decay = &no_decay_;
    return window;
  }

  Geometry geometry_;
  std::vector<Real> state_;
  std::vector<Real> output_;
  std::vector<float> no_log_decay_;  // [K] zeros; KDA
  float no_decay_ = 1;               // GDN
};

}  // namespace leapquant::judge
