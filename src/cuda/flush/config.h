// SPDX-License-Identifier: Apache-2.0
//
// What the flush kernel is given, and the sizes it is built for.
#pragma once

#include <cstdint>

#include "cuda/common/program.h"

namespace leapquant::cuda {

inline constexpr int kWarps = 4;  // one program per group of four warps, the unit of the matrix instructions
inline constexpr int kThreads = 32 * kWarps;
static_assert(kThreads == kDim, "a thread owns one row of every thin matrix");

// Thin matrices have 4 or 8 columns, of which the rank uses the first. `kColumns` selects the variant.
//
// Blocks that share a multiprocessor, which bounds the registers of a thread: as many as its shared memory holds, 227
// KiB from sm_90 to sm_110, 163 KiB on sm_80 and 99 KiB on the others; where every warp multiplies for itself, a third
// one would leave too few registers.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
constexpr int blocks_per_multiprocessor(int columns) { return columns == 4 ? 3 : 2; }
#elif __CUDA_ARCH__ >= 1000 && __CUDA_ARCH__ < 1200
constexpr int blocks_per_multiprocessor(int /*columns*/) { return 2; }
#elif __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900
constexpr int blocks_per_multiprocessor(int columns) { return columns == 4 ? 2 : 1; }
#else
constexpr int blocks_per_multiprocessor(int /*columns*/) { return 1; }
#endif

// Units that one pass over the counters looks at, and how many programs of them one block can be given. A unit is as
// many consecutive heads of a sequence as divide its heads, 8, 4 or 1; where the counters are not dense, one.
inline constexpr int kLargestUnit = 8;
inline constexpr int kScanRounds = 16;
inline constexpr int kScanUnits = kScanRounds * kThreads;
inline constexpr int kListLength = 64;
inline constexpr int kSmallestListGrid = kScanUnits * kLargestUnit / kListLength;

// 0x64 four times: see codes_to_halves().
inline constexpr uint32_t kCodeExponents = 0x64646464u;

// Further tensors of a flush. In place, targets are their sources.
enum FlushTensor {
  kTargetCodes = kStateTensors,
  kTargetKeyScale,
  kTargetValueScale,
  kTargetKeyFactor,
  kTargetValueFactor,
  kTensorCount
};

// Which programs are due, in place.
struct Selection {
  const int32_t* slot_index;  // [batch]; null in the functional form: every program is due
  ProgramBytes fill_count;
  int64_t num_slots;
  int64_t programs;  // batch x heads
  int32_t heads;
  int32_t unit;                   // heads whose counters are read at once: 8, 4 or 1
  int32_t* first_error_position;  // of ErrorWord
};

struct FlushArguments {
  ProgramBytes tensor[kTensorCount];
  int64_t key_factor_row;  // bytes from one factor to the next
  int64_t value_factor_row;
  int64_t target_key_factor_row;
  int64_t target_value_factor_row;
  const float* start_basis;  // [V, R]
  int32_t rank;
  Decay decay;
  uint32_t code_exponents;  // kCodeExponents: as an argument it does not become an immediate operand
  Selection selection;
};

}  // namespace leapquant::cuda
