// SPDX-License-Identifier: Apache-2.0
//
// Whole slots: a block resets or copies one program, about 32 KiB. Counters: a thread each.
#pragma once

#include "cuda/slots/part.cuh"

namespace leapquant::cuda::slots {

__device__ __forceinline__ void record_beyond(const SlotArguments& arguments, int32_t slot, uint32_t position) {
  if (threadIdx.x == 0 && slot >= arguments.num_slots) atomicMin(arguments.index_error, static_cast<int>(position));
}

__global__ void __launch_bounds__(kThreads) reset_kernel(const __grid_constant__ SlotArguments arguments) {
  const uint32_t position = blockIdx.x / arguments.heads;
  const uint32_t head = blockIdx.x - position * arguments.heads;
  const int32_t slot = arguments.target_index[position];
  record_beyond(arguments, slot, position);
  if (!names_slot(slot, arguments.num_slots)) return;
#pragma unroll
  for (int i = 0; i < kPartCount; ++i) reset_part(arguments.parts.of[i], slot, head);
  if (threadIdx.x == 0) *reinterpret_cast<int32_t*>(tensor_at(arguments.fill_count, slot, head)) = 0;
}

__global__ void __launch_bounds__(kThreads) copy_kernel(const __grid_constant__ SlotArguments arguments) {
  const uint32_t position = blockIdx.x / arguments.heads;
  const uint32_t head = blockIdx.x - position * arguments.heads;
  const int32_t source = arguments.source_index[position];
  const int32_t target = arguments.target_index[position];
  record_beyond(arguments, source, position);
  record_beyond(arguments, target, position);
  if (!names_slot(source, arguments.num_slots) || !names_slot(target, arguments.num_slots)) return;
#pragma unroll
  for (int i = 0; i < kPartCount; ++i) {
    const Part& part = arguments.parts.of[i];
    char* const from = tensor_at(part.tensor, source, head);
    char* const to = tensor_at(part.tensor, target, head);
    for_each_word<uint4>(0, part.bytes, [&](int offset) { word<uint4>(to, offset) = word<uint4>(from, offset); });
    for_each_word<uint32_t>(part.bytes / 16 * 16, part.bytes,
                            [&](int offset) { word<uint32_t>(to, offset) = word<uint32_t>(from, offset); });
  }
  if (threadIdx.x == 0) {
    *reinterpret_cast<int32_t*>(tensor_at(arguments.fill_count, target, head)) =
        *reinterpret_cast<const int32_t*>(tensor_at(arguments.fill_count, source, head));
  }
}

// A rule gives the same result however often it is applied, so that a slot may stand in the list twice.
template <CounterRule kRule>
__global__ void __launch_bounds__(kThreads) counter_kernel(const __grid_constant__ CounterArguments arguments) {
  const uint32_t program = blockIdx.x * kThreads + threadIdx.x;
  if (program >= arguments.programs) return;
  const uint32_t position = program / arguments.heads;
  const uint32_t head = program - position * arguments.heads;
  const int32_t slot = arguments.slot_index[position];
  if (!names_slot(slot, arguments.num_slots)) return;
  auto* const count = reinterpret_cast<int32_t*>(tensor_at(arguments.fill_count, slot, head));
  if constexpr (kRule == CounterRule::kMarkDue) {
    if (*count > 0 && *count < kEntries) *count = kEntries;
  } else if (*count == kEntries) {
    const auto* const weight = reinterpret_cast<const float*>(tensor_at(arguments.window_weight, slot, head));
    if (kRule == CounterRule::kEmpty || weight[kEntries - 1] == 0.0f) *count = 0;
  }
}

}  // namespace leapquant::cuda::slots
