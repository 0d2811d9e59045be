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

// A slot's program: its window, and its place in the batch.
struct Slot {
  uint32_t position;
  uint32_t head;
  int32_t slot;

  __device__ __forceinline__ explicit Slot(const CommitArguments& arguments)
      : position(blockIdx.x / arguments.heads),
        head(blockIdx.x - position * arguments.heads),
        slot(arguments.slot_index[position]) {}

  template <class T>
  __device__ __forceinline__ T* in(const ProgramBytes& tensor) const {
    return reinterpret_cast<T*>(tensor_at(tensor, slot, head));
  }
};

// What was met at a batch position. The smallest position stands.
__device__ __forceinline__ void record_trouble(const CommitArguments& arguments, step::Trouble trouble,
                                               uint32_t position) {
  if (threadIdx.x != 0) return;
  atomicMin(arguments.first_error_position + static_cast<int>(trouble), static_cast<int>(position));
}

// Gates of tokens first ... end - 1, appended as entries from `entry` on: the additions and products of single steps,
// in their order.
__device__ __forceinline__ void append_gates(const WindowTensors& window, const Slot& slot, const Record& record,
                                             uint32_t first, uint32_t end, uint32_t entry) {
  const uint32_t channel = threadIdx.x;
  auto* const gates = slot.in<uint16_t>(window.gate) + channel;
  float& log_decay = slot.in<float>(window.checkpoint_decay)[channel];
  float sum = log_decay;
  for (uint32_t t = first; t < end; ++t, ++entry) {
    gates[entry * kDim] = record.gate(t)[channel];
    sum += record.log_gate(t)[channel];
  }
  log_decay = sum;
  auto* const weight = slot.in<float>(window.weight);
  if (channel < kEntries && channel >= entry - (end - first) && channel < entry) weight[channel] = 1.0f;
}
// A decay by head is also that of the weights: a thread has one of them, and the last thread that of the checkpoint.
__device__ __forceinline__ void append_decays(const WindowTensors& window, const Slot& slot, const Record& record,
                                              uint32_t first, uint32_t end, uint32_t entry) {
  const uint32_t own = threadIdx.x;
  if (own > kEntries) return;
  float& number = own < kEntries ? slot.in<float>(window.weight)[own] : *slot.in<float>(window.checkpoint_decay);
  float product = number;
  for (uint32_t t = first; t < end; ++t, ++entry) {
    if (own < entry || own == kEntries) product *= record.token_decay(t);
    if (own == entry) product = 1.0f;
  }
  number = product;
}

// Appends tokens first ... end - 1 as entries from `entry` on, which the window has room for, and counts them.
template <Decay kDecay>
__device__ __forceinline__ void append_tokens(const WindowTensors& window, const Slot& slot, const Record& record,
                                              uint32_t first, uint32_t end, uint32_t entry) {
  const uint32_t channel = threadIdx.x;
  auto* const keys = slot.in<uint16_t>(window.key) + entry * kDim + channel;
  auto* const updates = slot.in<uint16_t>(window.update) + entry * kDim + channel;
  for (uint32_t t = first; t < end; ++t) {
    keys[(t - first) * kDim] = record.key(t)[channel];
    updates[(t - first) * kDim] = record.update(t)[channel];
  }
  if constexpr (kDecay == Decay::kByChannel) {
    append_gates(window, slot, record, first, end, entry);
  } else {
    append_decays(window, slot, record, first, end, entry);
  }
  if (channel == 0) *slot.in<int32_t>(window.fill_count) = static_cast<int32_t>(entry + end - first);
}

// How many tokens go in front of the flush. What is wrong is recorded, and nothing is appended then.
__device__ __forceinline__ uint32_t tokens_to_fill(const CommitArguments& arguments, const Slot& slot,
                                                   const Header& header, int32_t count, uint32_t& entries) {
  const int32_t accepted = arguments.accepted[slot.position];
  if (accepted == 0) return 0;
  const step::Occupied occupied(count, slot.in<const float>(arguments.window.weight));
  entries = occupied.entries;
  const bool fits = accepted > 0 && accepted <= arguments.tokens && header.tokens == arguments.tokens &&
                    header.entries == static_cast<int32_t>(entries);
  if (!occupied.ok || !fits) {
    record_trouble(arguments, occupied.ok ? step::Trouble::kCounter : occupied.trouble, slot.position);
    return 0;
  }
  if ((header.nonfinite & ((1u << accepted) - 1)) != 0) {
    record_trouble(arguments, step::Trouble::kNonFinite, slot.position);
  }
  return min(static_cast<uint32_t>(accepted), kEntries - entries);
}

template <Decay kDecay>
__global__ void __launch_bounds__(step::kThreads) fill_kernel(const __grid_constant__ CommitArguments arguments) {
  const Slot slot(arguments);
  if (!names_slot(slot.slot, arguments.num_slots)) {
    if (slot.slot > 0) record_trouble(arguments, step::Trouble::kIndex, slot.position);
    return;
  }
  const Record record(arguments.records, blockIdx.x);
  auto& counter = *slot.in<int32_t>(arguments.window.fill_count);
  const int32_t count = counter;
  uint32_t entries = 0;
  const uint32_t tokens = tokens_to_fill(arguments, slot, record.header(), count, entries);
  __syncthreads();  // counter, weights and header have been read
  if (tokens > 0) append_tokens<kDecay>(arguments.window, slot, record, 0, tokens, entries);
  const bool parked = tokens == 0 && count == kEntries;
  if (threadIdx.x != 0) return;
  if (parked) counter = kParkedCounter;
  record.header().stage = parked ? Stage::kParked : tokens + entries == kEntries ? Stage::kFilled : Stage::kDone;
}

template <Decay kDecay>
__global__ void __launch_bounds__(step::kThreads) rest_kernel(const __grid_constant__ CommitArguments arguments) {
  const Slot slot(arguments);
  if (!names_slot(slot.slot, arguments.num_slots)) return;
  const Record record(arguments.records, blockIdx.x);
  const Header header = record.header();
  __syncthreads();  // it has been read
  if (threadIdx.x == 0 && header.stage != Stage::kDone) record.header().stage = Stage::kDone;
  if (threadIdx.x == 0 && header.stage == Stage::kParked) *slot.in<int32_t>(arguments.window.fill_count) = kEntries;
  if (header.stage != Stage::kFilled) return;
  const auto accepted = static_cast<uint32_t>(arguments.accepted[slot.position]);
  const uint32_t filled = kEntries - static_cast<uint32_t>(header.entries);
  if (accepted > filled) append_tokens<kDecay>(arguments.window, slot, record, filled, accepted, 0);
}

}  // namespace leapquant::cuda::draft
