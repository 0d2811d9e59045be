// SPDX-License-Identifier: Apache-2.0
//
// What a benchmark of the flush runs: the case, its programs, and which of them are due.
#pragma once

#include <cstdint>
#include <span>

#include "judge/families.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::bench {

enum class Due { kAll, kSixteenth, kNone };
const char* due_name(Due due);  // "all", "1/16", "none"

struct FlushCase {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  lq_layout layout = LQ_LAYOUT_COMPACT;
  int64_t batch = 16;
  Due due = Due::kAll;
};

// Bytes that the flush of one program reads and writes, its window reset included.
int64_t flush_program_bytes(const lq_geometry& geometry);

// Multiply-adds in the products of one program's flush: rebuild (L + R), three thin products and the residual (4 R),
// for each element of the state. Conversions, norms and scales are not counted.
int64_t flush_program_multiply_adds(const lq_geometry& geometry);

// Programs of the random family, for pools that repeat the programs of `items` sequences.
judge::FlushInputs bench_inputs(const lq_geometry& geometry, int64_t items);

// Fills the counters of a pool's slots [N, H]; returns how many programs are due. A sixteenth is drawn program by
// program, so that its share is uneven over slots and heads.
int64_t draw_counters(const lq_geometry& geometry, Due due, std::span<int32_t> counters);

}  // namespace leapquant::bench
