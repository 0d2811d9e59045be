// SPDX-License-Identifier: Apache-2.0
//
// Whole slots: a block resets or copies one program, about 32 KiB. Counters: a thread each.
#pragma once

#include "cuda/slots/part.cuh"

namespace leapquant::cuda::slots {

__global__ void __launch_bounds__(kThreads) reset_kernel(const __grid_constant__ SlotArguments arguments) {
  const SlotProgram program(blockIdx.x, arguments.heads, arguments.target_index);
  if (!has_slot(program, arguments.num_slots, arguments.errors)) return;
#pragma unroll
  for (int i = 0; i < kPartCount; ++i) reset_part(arguments.parts.of[i], program);
  if (threadIdx.x == 0) *program.in<int32_t>(arguments.fill_count) = 0;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ SlotArguments arguments) {
  const SlotProgram source(blockIdx.x, arguments.heads, arguments.source_index);
  const SlotProgram target(blockIdx.x, arguments.heads, arguments.target_index);
  const bool has_source = has_slot(source, arguments.num_slots, arguments.errors);
  const bool has_target = has_slot(target, arguments.num_slots, arguments.errors);
  if (!has_source || !has_target) return;
#pragma unroll
  for (int i = 0; i < kPartCount; ++i) {
    const Part& part = arguments.parts.of[i];
    char* const from = source.in<char>(part.tensor);
    char* const to = target.in<char>(part.tensor);
    for_each_word<uint4>(0, part.bytes, [&](int offset) { word<uint4>(to, offset) = word<uint4>(from, offset); });
    for_each_word<uint32_t>(part.bytes / 16 * 16, part.bytes,
                            [&](int offset) { word<uint32_t>(to, offset) = word<uint32_t>(from, offset); });
  }
  if (threadIdx.x == 0) {
    *target.in<int32_t>(arguments.fill_count) = *source.in<const int32_t>(arguments.fill_count);
  }
}

// A rule gives the same result however often it is applied, so that a slot may stand in the list twice.
template <CounterRule kRule>
__global__ void __launch_bounds__(kThreads) counter_kernel(const __grid_constant__ CounterArguments arguments) {
  const uint32_t number = blockIdx.x * kThreads + threadIdx.x;
  if (number >= arguments.programs) return;
  const SlotProgram program(number, arguments.heads, arguments.slot_index);
  if (!names_slot(program.slot, arguments.num_slots)) return;
  auto* const count = program.in<int32_t>(arguments.fill_count);
  if constexpr (kRule == CounterRule::kMarkDue) {
    if (*count > 0 && *count < kEntries) *count = kEntries;
  } else if (*count == kEntries) {
    const auto* const weight = program.in<const float>(arguments.window_weight);
    if (kRule == CounterRule::kEmpty || weight[kEntries - 1] == 0.0f) *count = 0;
  }
}

}  // namespace leapquant::cuda::slots
