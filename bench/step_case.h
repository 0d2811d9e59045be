// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark of the step runs, and the bytes that it moves.
#pragma once

#include <cstdint>

#include "judge/step_families.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::bench {

enum class StepOp {
  kStep,   // one step of windows that are all filled alike
  kCycle,  // one of the tokens that fill a window, step and flush in one call, fills spread evenly over the programs
};
const char* step_op_name(StepOp op);  // "step", "cycle"

struct StepCase {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  lq_layout layout = LQ_LAYOUT_COMPACT;
  int64_t batch = 16;
  StepOp op = StepOp::kStep;
  int32_t fill = 8;  // occupied entries, kStep
};

// Bytes of one program's token: value, gate and beta, and its share of query and key. The constants of the model, which
// all sequences share, are not counted.
int64_t token_program_bytes(const lq_geometry& geometry);

// Bytes that the step of one program reads and writes: checkpoint, the occupied rows of the window, its weights, what
// the checkpoint has seen of decay, the counter, and the token; output, new rows, decay, the weights that change and
// the counter.
int64_t step_program_bytes(const lq_geometry& geometry, int64_t fill);

// The same summed over the fills 0 to L - 1.
int64_t step_cycle_bytes(const lq_geometry& geometry);

// Programs and tokens of the random family, softplus gate, for pools that repeat those of `items` sequences.
judge::StepInputs step_bench_inputs(const lq_geometry& geometry, int64_t items);

}  // namespace leapquant::bench
