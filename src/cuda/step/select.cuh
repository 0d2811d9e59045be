// SPDX-License-Identifier: Apache-2.0
//
// Which program a block steps, how many entries its window has, and what becomes of one that must not step.
#pragma once

#include "cuda/common/slot.cuh"
#include "cuda/step/storage.cuh"

namespace leapquant::cuda::step {

// The block's program, and where its tensors are. Nothing is left to do where the slot is none of the pool. Otherwise
// passes a barrier.
template <Decay kDecay>
__device__ __forceinline__ bool find_program(const StepArguments& arguments, SharedStorage& smem, uint32_t thread,
                                             Program& program) {
  // A lane's own: constant memory takes its time where lanes differ, which the load of the index hides.
  const ProgramBytes own = arguments.tensor[min(thread, kTensorCount - 1u)];
  program.position = blockIdx.x / arguments.heads;
  program.head = blockIdx.x - program.position * arguments.heads;
  program.item = static_cast<int32_t>(program.position);
  uint32_t head = program.head;  // of the thread's tensor
  if (kDecay == Decay::kByHead && (thread == kQueryInput || thread == kKeyInput)) head /= arguments.group_size;
  if (arguments.slot_index != nullptr) {
    program.item = __ldg(arguments.slot_index + program.position);
    if (program.item <= 0 || program.item >= arguments.num_slots) {
      reinterpret_cast<uint16_t*>(tensor_at(arguments.tensor[kOutput], program.position, program.head))[thread] = 0;
      if (program.item > 0 && thread == 0) record_error(arguments.errors, ErrorKind::kIndex, program.position);
      return false;
    }
  }
  if (thread < kTensorCount) {
    smem.address[thread] = tensor_at(own, thread < kOutput ? int64_t{program.item} : int64_t{program.position}, head);
  }
  __syncthreads();
  return true;
}

// The functional form has no error word: the results of a count that is none are NaN.
template <Decay kDecay>
__device__ __forceinline__ void write_no_numbers(const SharedStorage& smem, uint32_t thread) {
  constexpr uint16_t kNaN16 = 0x7FFF;  // of both 16-bit formats
  const float no_number = __uint_as_float(0x7FFFFFFFu);
  for (const int row : {kOutput, kTargetKey, kTargetUpdate}) tensor_of<uint16_t>(smem, row)[thread] = kNaN16;
  if (kDecay == Decay::kByChannel) tensor_of<uint16_t>(smem, kTargetGate)[thread] = kNaN16;
  if (thread < kGateChannels<kDecay>) tensor_of<float>(smem, kTargetCheckpointDecay)[thread] = no_number;
  if (thread < kEntries) tensor_of<float>(smem, kTargetWeight)[thread] = no_number;
}

// The occupied entries of a pool's program, or why it must not step: by its counter, and the weights [L]. A flush
// leaves the counter at L and the weights at 0; NaN is no 0.
struct Occupied {
  uint32_t entries;
  bool ok = true;
  ErrorKind trouble = ErrorKind::kCounter;

  __device__ __forceinline__ Occupied(int32_t count, const float* weights) : entries(static_cast<uint32_t>(count)) {
    if (entries < kEntries) return;
    ok = entries == kEntries && weights[kEntries - 1] == 0.0f;
    if (entries == kEntries) trouble = ErrorKind::kUnflushed;
    entries = 0;
  }
};

// What the counter says: the occupied entries, or that the program must not step, which is then dealt with.
template <Decay kDecay>
__device__ __forceinline__ bool find_entries(const StepArguments& arguments, const SharedStorage& smem,
                                             const Program& program, uint32_t thread, int32_t count,
                                             uint32_t& entries) {
  entries = static_cast<uint32_t>(count);
  if (entries < kEntries) return true;
  if (arguments.slot_index == nullptr) {
    write_no_numbers<kDecay>(smem, thread);
    return false;
  }
  const Occupied occupied(count, tensor_of<float>(smem, kWindowWeight));
  entries = occupied.entries;
  if (occupied.ok) return true;
  tensor_of<uint16_t>(smem, kOutput)[thread] = 0;
  if (thread == 0) record_error(arguments.errors, occupied.trouble, program.position);
  return false;
}

}  // namespace leapquant::cuda::step
