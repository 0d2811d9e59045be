// SPDX-License-Identifier: Apache-2.0
//
// What the kernels of all operations say of programs: their sizes, and where their tensors are. Host and device code
// include it.
#pragma once

#include <cstdint>

namespace leapquant::cuda {

inline constexpr int kDim = 128;  // V and K
inline constexpr int kEntries = 16;
inline constexpr int kMostFactors = 8;

// What decays the state between tokens. KDA: gates and one decay for every key channel, the latter as a logarithm. GDN:
// one decay for the whole head, which window weights have taken already.
enum class Decay { kByChannel, kByHead };

// A tensor of [items, heads] programs; strides in bytes.
struct ProgramBytes {
  char* base;
  int64_t item_stride;
  int64_t head_stride;
};

// The tensors of checkpoints and windows. Each operation numbers its own behind them.
enum Tensor {
  kCodes,
  kKeyScale,
  kValueScale,
  kKeyFactor,
  kValueFactor,
  kWindowKey,
  kWindowUpdate,
  kWindowWeight,
  kWindowGate,       // none with a decay by head
  kCheckpointDecay,  // its logarithm with a decay by channel
  kStateTensors
};

// Bytes between the rows of a program's factors.
struct FactorRows {
  int64_t key;
  int64_t value;
};

}  // namespace leapquant::cuda
