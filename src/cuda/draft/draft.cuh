// SPDX-License-Identifier: Apache-2.0
//
// The draft: the steps of T tokens, one behind the other, a program a block. What a step would append goes into the
// program's record, from where the next token attends to it; codes, scales and factors are read once. The window's rows
// are fetched for every token again: where they lie in shared memory depends on their age.
#pragma once

#include "cuda/common/slot.cuh"
#include "cuda/draft/record.cuh"
#include "cuda/step/token.cuh"

namespace leapquant::cuda::draft {

using step::Place;
using step::Program;

// Where the program's tensors are for token t. Passes a barrier behind it.
__device__ __forceinline__ void enter_token(const DraftArguments& arguments, step::SharedStorage& smem,
                                            const Program& program, uint32_t t) {
  const uint32_t thread = threadIdx.x;
  if (thread < step::kTensorCount) {
    const int64_t row = int64_t{program.position} * arguments.tokens + t;
    const int64_t item = thread < step::kTargetKey ? int64_t{program.item}
                         : thread < step::kOutput  ? int64_t{program.position}
                                                   : row;
    const bool shared = thread == step::kQueryInput || thread == step::kKeyInput;
    const uint32_t head = shared ? program.head / arguments.step.group_size : program.head;
    smem.address[thread] = tensor_at(arguments.step.tensor[thread], item, head);
  }
  __syncthreads();
}

// A program that is not drafted has zero rows, and a record that is empty.
__device__ __forceinline__ void write_nothing(const DraftArguments& arguments, const Program& program,
                                              const Record& record) {
  for (uint32_t t = 0; t < arguments.tokens; ++t) {
    const int64_t row = int64_t{program.position} * arguments.tokens + t;
    auto* const output =
        reinterpret_cast<uint16_t*>(tensor_at(arguments.step.tensor[step::kOutput], row, program.head));
    output[threadIdx.x] = 0;
  }
  if (threadIdx.x == 0) record.header() = {};
}

// The block's program and its occupied entries. False when it must not be drafted, which is then dealt with. Otherwise
// the first token has been entered.
__device__ __forceinline__ bool find_program(const DraftArguments& arguments, step::SharedStorage& smem,
                                             const Record& record, Program& program, uint32_t& entries) {
  program.position = blockIdx.x / arguments.step.heads;
  program.head = blockIdx.x - program.position * arguments.step.heads;
  program.item = __ldg(arguments.step.slot_index + program.position);
  const auto refuse = [&](bool reported, ErrorKind trouble) {
    write_nothing(arguments, program, record);
    if (reported && threadIdx.x == 0) record_error(arguments.step.errors, trouble, program.position);
    return false;
  };
  if (!names_slot(program.item, arguments.step.num_slots)) return refuse(program.item > 0, ErrorKind::kIndex);
  enter_token(arguments, smem, program, 0);
  const step::Occupied occupied(*step::tensor_of<const int32_t>(smem, step::kFillCount),
                                step::tensor_of<const float>(smem, kWindowWeight));
  entries = occupied.entries;
  return occupied.ok || refuse(true, occupied.trouble);
}

// The rows of the tokens before t, `occupied` entries in front of them: a warp reads what it has written.
template <Decay kDecay>
__device__ __forceinline__ void copy_drafted(step::StorageOf<kDecay, kRoom>& smem, const Place& place,
                                             const Record& record, uint32_t occupied, uint32_t t) {
  const step::CopyPlace own(place);
  if (own.row >= t) return;
  const uint32_t target =
      (occupied + own.row) * step::kRowBytes + step::row_offset(own.byte, step::half_of_age(t - 1 - own.row));
  const auto copy = [&](const uint16_t* from, const uint16_t(&to)[kRoom][kDim]) {
    store_shared(shared_address(to) + target, load_global16(reinterpret_cast<const char*>(from) + own.byte));
  };
  copy(record.key(own.row), smem.window_key);
  if constexpr (kDecay == Decay::kByChannel) copy(record.gate(own.row), smem.window_gate);
  copy(record.update(own.row), smem.window_update);
}

// What a commit needs of token t's gate, beside the row that the step has written.
__device__ __forceinline__ void write_gate(const Record& record, uint32_t t,
                                           const step::Gate<Decay::kByChannel>& gate) {
  record.log_gate(t)[threadIdx.x] = gate.log_gate;
}
__device__ __forceinline__ void write_gate(const Record& record, uint32_t t, const step::Gate<Decay::kByHead>& gate) {
  if (threadIdx.x == 0) record.token_decay(t) = gate.of_window();
}

// The warp's weights once a token has been appended to `entries` of them.
template <Decay kDecay>
__device__ __forceinline__ void append_weight(step::WindowStorage<kRoom>& smem, const Place& place,
                                              const step::Gate<kDecay>& gate, uint32_t entries) {
  float& weight = smem.window_weight[place.warp][place.lane % kRoom];
  if (place.lane < entries) weight *= gate.of_window();
  if (place.lane == entries) weight = 1.0f;
}

template <Decay kDecay>
__global__ void __launch_bounds__(step::kThreads, kBlocksPerMultiprocessor)
    draft_kernel(const __grid_constant__ DraftArguments arguments) {
  __shared__ step::StorageOf<kDecay, kRoom> smem;
  const Place place;
  const Record record(arguments.records, blockIdx.x);
  Program program;
  uint32_t occupied;
  if (!find_program(arguments, smem, record, program, occupied)) return;
  step::Codes codes;
  codes.load(step::tensor_of<char>(smem, kCodes), place);
  const uint32_t gate_channel = step::gate_channel_of<kDecay>(place.thread);
  step::Scales scales(smem, place, gate_channel);
  copy_factors(arguments.step, smem, place);
  copy_weights(smem, place);
  uint32_t nonfinite = 0;
#pragma unroll 1
  for (uint32_t t = 0; t < arguments.tokens; ++t) {
    const uint32_t entries = occupied + t;
    if (t > 0) enter_token(arguments, smem, program, t);
    const step::Token token(smem, arguments.step.gate, place, gate_channel);
    copy_drafted<kDecay>(smem, place, record, occupied, t);
    step::copy_window<kDecay>(smem, place, occupied, entries);
    step::write_beta(smem, place, token);
    const step::Gate<kDecay> gate(arguments.step, smem, place, token, scales);
    const bool finite = step_token(arguments.step, smem, place, codes, scales, token, gate, entries, t);
    write_gate(record, t, gate);
    append_weight(smem, place, gate, entries);
    scales.checkpoint_decay = gate.checkpoint_decay();
    // The barrier of the token's end: what it has read in shared memory may be written again.
    if (__syncthreads_or(!finite)) nonfinite |= 1u << t;
  }
  const uint32_t entries = occupied + arguments.tokens;
  if (kDecay == Decay::kByHead && place.thread < entries)
    record.weight()[place.thread] = smem.window_weight[0][place.thread];
  if (place.thread != 0) return;
  record.header() = {static_cast<int32_t>(arguments.tokens), static_cast<int32_t>(occupied), nonfinite, Stage::kDone};
}

}  // namespace leapquant::cuda::draft
