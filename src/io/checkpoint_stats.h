// SPDX-License-Identifier: Apache-2.0
//
// What the checkpoints of a file look like: scales, codes, and the states that they stand for.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "io/checkpoint_file.h"

namespace leapquant::io {

struct Spread {
  float min = 0;
  float median = 0;
  float max = 0;
};

// Order statistics of at least one value. NaN sorts above everything.
Spread spread_of(std::span<const float> values);

inline constexpr int kCodeValues = 256;

struct CodeStats {
  std::array<int64_t, kCodeValues> count{};  // of code c at c + 128
  int64_t zero_programs = 0;                 // programs whose residual codes are all zero
};

CodeStats code_stats(const ProgramFile& file);

// Decoded states, by head index over the batch.
struct HeadStats {
  double mean_abs = 0;  // over all elements of all its programs
  double max_abs = 0;
  int64_t nonfinite = 0;  // elements; left out of the other two
};

std::vector<HeadStats> state_stats(const ProgramFile& file);

}  // namespace leapquant::io
