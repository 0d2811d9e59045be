// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant {

// What a token does to the weights of a window with `entries` occupied entries: those of GDN decay, as what the
// checkpoint has seen does, and the new entry's is 1. Steps, drafts and commits take the same roundings from here.
// `token_decay` is not looked at for KDA, whose decays are rows of their own.
inline void append_weight(Gate gate, const WindowProgram& window, int64_t entries, float token_decay) {
  if (gate == Gate::kGdn) {
    for (int64_t j = 0; j < entries; ++j) window.window_weight[j] *= token_decay;
    *window.decay *= token_decay;
  }
  window.window_weight[entries] = 1.0f;
}

}  // namespace leapquant
