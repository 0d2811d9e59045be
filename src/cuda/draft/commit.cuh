// SPDX-License-Identifier: Apache-2.0
//
// The commit of drafted tokens, a program a block, in two launches with a flush between them:
//
//   fill   appends accepted tokens up to the window's end; a window that this fills is due to the flush
//   flush  of what is due among the slots
//   rest   appends what is left to the windows that have been flushed
//
// A flush takes every window whose counter is L. One that was there before is none of the commit's business: its
// counter is parked meanwhile.
#pragma once

#include "cuda/common/slot.cuh"
#include "cuda/draft/record.cuh"
#include "cuda/step/select.cuh"

namespace leapquant::cuda::draft {

constexpr int32_t kParkedCounter = -kEntries;

__device__ __forceinline__ SlotProgram program_of(const CommitArguments& arguments) {
  return {blockIdx.x, arguments.heads, arguments.slot_index};
}

// Gates of tokens first ... end - 1, appended as entries from `entry` on: the additions and products of single steps,
// in their order.
__device__ __forceinline__ void append_gates(const ProgramBytes* tensor, const SlotProgram& program,
                                             const Record& record, uint32_t first, uint32_t end, uint32_t entry) {
  const uint32_t channel = threadIdx.x;
  auto* const gates = program.in<uint16_t>(tensor[kWindowGate]) + channel;
  float& log_decay = program.in<float>(tensor[kCheckpointDecay])[channel];
  float sum = log_decay;
  for (uint32_t t = first; t < end; ++t, ++entry) {
    gates[entry * kDim] = record.gate(t)[channel];
    sum += record.log_gate(t)[channel];
  }
  log_decay = sum;
  auto* const weight = program.in<float>(tensor[kWindowWeight]);
  if (channel < kEntries && channel >= entry - (end - first) && channel < entry) weight[channel] = 1.0f;
}
// A decay by head is also that of the weights: a thread has one of them, the one behind them the checkpoint's.
__device__ __forceinline__ void append_decays(const ProgramBytes* tensor, const SlotProgram& program,
                                              const Record& record, uint32_t first, uint32_t end, uint32_t entry) {
  const uint32_t own = threadIdx.x;
  if (own > kEntries) return;
  float& number =
      own < kEntries ? program.in<float>(tensor[kWindowWeight])[own] : *program.in<float>(tensor[kCheckpointDecay]);
  float product = number;
  for (uint32_t t = first; t < end; ++t, ++entry) {
    if (own < entry || own == kEntries) product *= record.token_decay(t);
    if (own == entry) product = 1.0f;
  }
  number = product;
}

// Appends tokens first ... end - 1 as entries from `entry` on, which the window has room for, and counts them.
template <Decay kDecay>
__device__ __forceinline__ void append_tokens(const ProgramBytes* tensor, const SlotProgram& program,
                                              const Record& record, uint32_t first, uint32_t end, uint32_t entry) {
  const uint32_t channel = threadIdx.x;
  auto* const keys = program.in<uint16_t>(tensor[kWindowKey]) + entry * kDim + channel;
  auto* const updates = program.in<uint16_t>(tensor[kWindowUpdate]) + entry * kDim + channel;
  for (uint32_t t = first; t < end; ++t) {
    keys[(t - first) * kDim] = record.key(t)[channel];
    updates[(t - first) * kDim] = record.update(t)[channel];
  }
  if constexpr (kDecay == Decay::kByChannel) {
    append_gates(tensor, program, record, first, end, entry);
  } else {
    append_decays(tensor, program, record, first, end, entry);
  }
  if (channel == 0) *program.in<int32_t>(tensor[step::kFillCount]) = static_cast<int32_t>(entry + end - first);
}

// How many tokens go in front of the flush. What is wrong is recorded, and nothing is appended then.
__device__ __forceinline__ uint32_t tokens_to_fill(const CommitArguments& arguments, const SlotProgram& program,
                                                   const Header& header, int32_t count, uint32_t& entries) {
  const int32_t accepted = arguments.accepted[program.position];
  if (accepted == 0) return 0;
  const auto report = [&](ErrorKind kind) {
    if (threadIdx.x == 0) record_error(arguments.errors, kind, program.position);
  };
  const step::Occupied occupied(count, program.in<const float>(arguments.tensor[kWindowWeight]));
  entries = occupied.entries;
  const bool fits = accepted > 0 && accepted <= arguments.tokens && header.tokens == arguments.tokens &&
                    header.entries == static_cast<int32_t>(entries);
  if (!occupied.ok || !fits) {
    report(occupied.ok ? ErrorKind::kCounter : occupied.trouble);
    return 0;
  }
  if ((header.nonfinite & ((1u << accepted) - 1)) != 0) report(ErrorKind::kNonFinite);
  return min(static_cast<uint32_t>(accepted), kEntries - entries);
}

template <Decay kDecay>
__global__ void __launch_bounds__(step::kThreads) fill_kernel(const __grid_constant__ CommitArguments arguments) {
  const SlotProgram program = program_of(arguments);
  if (!has_slot(program, arguments.num_slots, arguments.errors)) return;
  const Record record(arguments.records, blockIdx.x);
  auto& counter = *program.in<int32_t>(arguments.tensor[step::kFillCount]);
  const int32_t count = counter;
  uint32_t entries = 0;
  const uint32_t tokens = tokens_to_fill(arguments, program, record.header(), count, entries);
  __syncthreads();  // counter, weights and header have been read
  if (tokens > 0) append_tokens<kDecay>(arguments.tensor, program, record, 0, tokens, entries);
  const bool parked = tokens == 0 && count == kEntries;
  if (threadIdx.x != 0) return;
  if (parked) counter = kParkedCounter;
  record.header().stage = parked ? Stage::kParked : tokens + entries == kEntries ? Stage::kFilled : Stage::kDone;
}

template <Decay kDecay>
__global__ void __launch_bounds__(step::kThreads) rest_kernel(const __grid_constant__ CommitArguments arguments) {
  const SlotProgram program = program_of(arguments);
  if (!names_slot(program.slot, arguments.num_slots)) return;
  const Record record(arguments.records, blockIdx.x);
  const Header header = record.header();
  __syncthreads();  // it has been read
  if (threadIdx.x == 0 && header.stage != Stage::kDone) record.header().stage = Stage::kDone;
  if (threadIdx.x == 0 && header.stage == Stage::kParked)
    *program.in<int32_t>(arguments.tensor[step::kFillCount]) = kEntries;
  if (header.stage != Stage::kFilled) return;
  const auto accepted = static_cast<uint32_t>(arguments.accepted[program.position]);
  const uint32_t filled = kEntries - static_cast<uint32_t>(header.entries);
  if (accepted > filled) append_tokens<kDecay>(arguments.tensor, program, record, filled, accepted, 0);
}

}  // namespace leapquant::cuda::draft
