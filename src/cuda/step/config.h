// SPDX-License-Identifier: Apache-2.0
//
// What the step kernel is given, and the sizes it is built for.
#pragma once

#include <cstdint>

#include "cuda/common/program.h"
#include "plan/error_word.h"

namespace leapquant::cuda::step {

inline constexpr int kWarps = 4;  // of a block, which steps one program
inline constexpr int kThreads = 32 * kWarps;
static_assert(kThreads == kDim, "a thread owns one key channel and one value channel");

inline constexpr int kSides = 2;  // products of the state with kn and with qn

// Blocks that share a multiprocessor, which bounds the registers of a thread. While one computes, the others' copies
// are on their way. The scalar decay needs fewer registers and less shared memory.
constexpr int blocks_per_multiprocessor(Decay decay) { return decay == Decay::kByHead ? 7 : 6; }

// 0x43 four times: see codes_to_bfloats().
inline constexpr uint32_t kCodeExponents = 0x43434343u;

// How a log-gate comes about: the values of GateFunction, whose header is C++20, which kernels are not.
enum class GateKind : int32_t { kSoftplus = 0, kBounded = 1, kGiven = 2 };

// Further tensors of a step. Items are batch positions, or slots for those before kOutput in place.
enum StepTensor {
  kFillCount = kStateTensors,  // occupied entries; in place the counters
  kTargetKey,                  // rows of the new entry; in place those of the window
  kTargetUpdate,
  kTargetWeight,
  kTargetGate,
  kTargetCheckpointDecay,
  kOutput,
  kQueryInput,
  kKeyInput,
  kValueInput,
  kBetaInput,
  kGateInput,  // unless the gate is given
  kLogRate,
  kGateBias,
  kLogGate,  // when it is
  kTensorCount
};

struct StepArguments {
  ProgramBytes tensor[kTensorCount];
  FactorRows factor_row;
  const int32_t* slot_index;  // [batch]; null in the functional form: items are positions
  int64_t num_slots;
  ErrorWord* errors;  // in place
  uint32_t programs;  // batch x heads
  uint32_t heads;
  uint32_t group_size;  // heads that share a query and a key; 1 with a decay by channel
  uint32_t rank;
  Decay decay;
  GateKind gate;
  float lower_bound;
  uint32_t code_exponents;  // kCodeExponents: as an argument it does not become an immediate operand
};

}  // namespace leapquant::cuda::step
