// SPDX-License-Identifier: Apache-2.0
//
// The judge: how far a new checkpoint is from the state it stands for, and whether that is good enough. The decoded
// state is judged, never the codes.
//
// Per program, with S the state rebuilt in double and err = mean |decode(result) - S| over its V x K elements:
//   1. The result is well formed: everything finite, scales positive, codes in [-127, 127].
//   2. err_ref is the error of the float reference on the same input, or that of the double evaluation where the float
//      reference is not finite or is the worse of the two.
//   3. Relative bound: err <= 1.01 err_ref where err_ref >= 1e-4 mean|S| and err_ref > 0.
//   4. Absolute bound: err <= 1e-3 mean|S| otherwise: the format captures such a head almost exactly.
//
// Strict: every program alone keeps its bound; this decides. Averaged: the published judge takes the same bound on the
// three figures averaged over the batch for each head index; it is computed beside the strict one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/program_view.h"
#include "judge/tensors.h"

namespace leapquant::judge {

inline constexpr double kRelativeBound = 1.01;
inline constexpr double kRelativeRegime = 1e-4;  // of mean |S|: where the relative bound begins
inline constexpr double kAbsoluteBound = 1e-3;   // of mean |S|

// The figures of one program, or of a head averaged over the batch.
struct Score {
  bool well_formed = false;
  double mean_abs = 0;         // mean |S|
  double error = 0;            // err; infinite when the result is not well formed
  double reference_error = 0;  // err_ref

  bool relative() const { return reference_error > 0 && reference_error >= kRelativeRegime * mean_abs; }
  double bound() const { return relative() ? kRelativeBound * reference_error : kAbsoluteBound * mean_abs; }
  bool passes() const { return well_formed && error <= bound(); }
};

// Scores `result` as the flush of one program.
Score score_program(const Geometry& geometry, const CheckpointProgram& checkpoint, const WindowProgram& window,
                    const float* start_basis, const CheckpointProgram& result);

struct Judgement {
  int64_t programs = 0;
  int64_t over = 0;            // programs that fail the strict criterion
  bool finite = true;          // every result is well formed
  double worst_ratio = 0;      // largest err / err_ref under the relative bound; 0 where no program is under it
  double worst_absolute = 0;   // largest err / (1e-3 mean|S|) under the absolute bound, so 1 is the bound
  int64_t worst_program = -1;  // item * H + head of the program that uses most of its bound
  uint64_t worst_seed = 0;     // whose inputs that program belongs to
  double averaged_ratio = 0;   // largest err / err_ref of a head's averages; 0 where none is under the relative bound
  int64_t averaged_over = 0;   // heads that fail the averaged criterion

  bool passes() const { return over == 0; }
  // The share of its bound that the worst program uses.
  double worst_use() const { return std::max(worst_ratio / kRelativeBound, worst_absolute); }
};

// Adds a run to the judgement of several. Errors are averaged within a run only; the worst average counts.
void include(Judgement& all, const Judgement& run);

// Judges scores in the order [batch, H].
Judgement summarize(std::span<const Score> scores, int64_t num_heads);

// Scores every program of a flush, on `threads` threads (0: one for each CPU). The result doesn't depend on them.
std::vector<Score> score_flush(const FlushInputs& inputs, const CheckpointView& result, int threads);

Judgement judge_flush(const FlushInputs& inputs, const CheckpointView& result, int threads);

}  // namespace leapquant::judge
