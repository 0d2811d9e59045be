// SPDX-License-Identifier: Apache-2.0
//
// The flush: one block of 8 warps per program in flight, two blocks a multiprocessor, a persistent grid.
//
// S is never formed before the residual. With C the codes, c[k] = s_k[k] exp(pcum[k]) / 127, A = [ubuf | old q] and
// B = [w D kbuf | old u exp(pcum)],
//
//   step 1  S = diag(s_v) C diag(c) + A B
//   step 2  Z = Sᵀ q0 = c (Cᵀ (s_v q0)) + Bᵀ (Aᵀ q0),   P = orth Z
//           Y = S P   = s_v (C (c P)) + A (B P),          Q = orth Y
//           U = Sᵀ Q  = c (Cᵀ (s_v Q)) + Bᵀ (Aᵀ Q)
//   step 3  E = S - q'ᵀ u', key scales, value scales, codes
//
// Codes are exact in fp16, so only the thin operand is split, into two halves side by side (hi, lo, hi, lo, ...) under
// a power of two. The parts of A and B are bfloats, split likewise where they are not exact: into two terms for E, into
// three (24 bits) for the iteration, where a state with one dominant direction magnifies every error. Warp w owns the
// key columns 16 w ... 16 w + 15: Z, U and the column sums need no other warp; Y and the row maxima do.
//
// Lanes: g = lane / 4, t = lane % 4. In fragments whose rows (or columns) are key columns, slot s < 8 is column 2 s of
// the warp's 16 and slot 8 + s is column 2 s + 1. Thin results: a thread holds factor r = t (and t + 4) of two columns
// (2 g, 2 g + 1) or two rows (16 w + g, 16 w + g + 8).
//
// Per program at rank 4: 32,320 bytes read, 24,128 written.
#pragma once

#include "cuda/common/ptx.cuh"
#include "cuda/flush/config.h"

namespace leapquant::cuda {

// Everything that is read of one program. Rows of 16-byte chunks, chunk c of row i at c ^ (i % 8): see swizzled().
template <int kColumns>
struct alignas(128) Stage {
  uint8_t codes[kDim * kDim];
  uint16_t window_key[kEntries * kDim];
  uint16_t window_update[kEntries * kDim];
  uint16_t window_gate[kEntries * kDim];
  uint16_t key_factor[kColumns * kDim];  // rows beyond the rank stay zero
  uint16_t value_factor[kColumns * kDim];
  float key_scale[kDim];
  float value_scale[kDim];
  float log_decay[kDim];
  float window_weight[kEntries];
};

// The programs of one block: those whose rank among the due programs is the block's number modulo the grid. Every block
// scans all counters in the same order.
struct DueList {
  int64_t scanned;  // programs scanned so far
  uint32_t phase;   // rank, counted from `scanned` on, of this block's next program
  int32_t slot[kListLength];
  int32_t position[kListLength];
  uint16_t head[kListLength];
  uint32_t count[kScanRounds * kWarps];
};

template <int kColumns>
struct SharedStorage {
  static constexpr int kTiles = kColumns / 4;  // tiles of 8 thin columns: hi and lo of 4 factors
  Stage<kColumns> stage[2];
  uint16_t old_factor[2 * kColumns * kDim];      // old q as bfloats: hi rows, then lo rows; swizzled
  uint16_t thin[kTiles][kDim][8];                // s_v q0 or s_v Q, as halves
  uint16_t new_factor[kDim][8];                  // -q' by rows; columns beyond kColumns stay zero
  uint16_t window_thin[2][kTiles][kEntries][8];  // Aᵀx or B P, as bfloats: hi and lo; third term and nothing
  uint16_t factor_thin[2][kTiles][16][8];
  union {
    float2 product[kWarps][kTiles][8][32];  // each warp's part of Y; from the products to their sum
    float column[kDim][kColumns];           // slow orthonormalization: at other times
  };
  float2 window_part[kWarps][kTiles][32];  // each warp's part of Aᵀx or B P
  float2 factor_part[kWarps][kTiles][32];
  alignas(16) float gram_part[2][kWarps][kColumns * kColumns];
  alignas(16) float inverse[kTiles][kTiles][4][4];  // InverseRows of the four lanes t
  float inverse_scale;
  int conditioning;
  int gram_field[2][kWarps];
  float code_scale[kDim];
  uint32_t row_largest[kDim];  // bits of non-negative floats, which order like integers
  int non_finite;
  float start_largest[kWarps][kColumns];
  DueList due;
  ProgramBytes tensor[kTensorCount];  // of the arguments: constant memory is slow where lanes differ
  char* address[2][kTensorCount];     // of the programs of the two stages
};

struct Program {
  int64_t position;  // in the batch; -1: none
  int64_t item;
  int64_t head;
};

__device__ __forceinline__ char* at(const ProgramBytes& tensor, const Program& program) {
  return tensor.base + program.item * tensor.item_stride + program.head * tensor.head_stride;
}

// Byte offset of 16-byte chunk `chunk` of row `row`, rows `row_bytes` apart: eight rows of one chunk lie in different
// banks.
__device__ __forceinline__ uint32_t swizzled(int row, int chunk, int row_bytes) {
  return static_cast<uint32_t>(row * row_bytes + ((chunk ^ (row & 7)) << 4));
}

// ---- selection ------------------------------------------------------------------------------------------------------

// One chunk of counters into the list; its length. Ends with a barrier.
__device__ __noinline__ uint32_t scan_chunk(const Selection selection, DueList& due) {
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = threadIdx.x / 32;
  const auto heads = static_cast<uint32_t>(selection.heads);
  const int64_t first_position = due.scanned / selection.heads;
  const auto first_head = static_cast<uint32_t>(due.scanned - first_position * selection.heads);
  const int64_t left = selection.programs - due.scanned;
  const uint32_t phase = due.phase;
  // One division for the first round; the later ones step on by kThreads programs.
  const uint32_t step_positions = kThreads / heads;
  const uint32_t step_heads = kThreads % heads;
  const auto step_on = [&](int64_t& position, uint32_t& head) {
    position += step_positions;
    head += step_heads;
    if (head < heads) return;
    head -= heads;
    ++position;
  };
  const uint32_t own_positions = (first_head + threadIdx.x) / heads;
  const int64_t own_position = first_position + own_positions;
  const uint32_t own_head = first_head + threadIdx.x - own_positions * heads;
  // All indices first, then all counters: two latencies for the chunk.
  int32_t slot[kScanRounds];
  int64_t position = own_position;
  uint32_t head = own_head;
#pragma unroll
  for (int round = 0; round < kScanRounds; ++round) {
    slot[round] = round * kThreads + threadIdx.x < left ? selection.slot_index[position] : 0;
    step_on(position, head);
  }
  int32_t count[kScanRounds];
  position = own_position;
  head = own_head;
#pragma unroll
  for (int round = 0; round < kScanRounds; ++round) {
    const bool inside = slot[round] > 0 && slot[round] < selection.num_slots;
    count[round] = inside ? *reinterpret_cast<const int32_t*>(at(selection.fill_count, {0, slot[round], head})) : 0;
    step_on(position, head);
  }
  uint32_t mask[kScanRounds];
  position = own_position;
  head = own_head;
#pragma unroll
  for (int round = 0; round < kScanRounds; ++round) {
    mask[round] = __ballot_sync(kFullWarp, count[round] == kEntries);
    if (slot[round] >= selection.num_slots && blockIdx.x == 0) {
      atomicMin(selection.first_error_position + 0, static_cast<int>(position));
    }
    step_on(position, head);
  }
  if (lane == 0) {
#pragma unroll
    for (int round = 0; round < kScanRounds; ++round) due.count[round * kWarps + warp] = __popc(mask[round]);
  }
  __syncthreads();
  // Every warp makes the prefix sums of the 128 counts for itself: four a lane.
  static_assert(kScanRounds * kWarps == 128);
  uint32_t counts[4];
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    counts[i] = sum;
    sum += due.count[lane * 4 + i];
  }
  uint32_t before = sum;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, before, step);
    if (lane >= step) before += other;
  }
  const uint32_t total = __shfl_sync(kFullWarp, before, 31);
  before -= sum;
#pragma unroll
  for (int i = 0; i < 4; ++i) counts[i] += before;
  if (total > phase) {
    position = own_position;
    head = own_head;
    const uint32_t element = warp % 4;
    const uint32_t mine = element == 0 ? counts[0] : element == 1 ? counts[1] : element == 2 ? counts[2] : counts[3];
#pragma unroll
    for (int round = 0; round < kScanRounds; ++round) {
      // Count number round * 8 + warp: lane 2 round + warp / 4, element warp % 4.
      const uint32_t rank =
          __shfl_sync(kFullWarp, mine, 2 * round + warp / 4) + __popc(mask[round] & ((1u << lane) - 1));
      const uint32_t place = (rank - phase) / gridDim.x;
      if ((mask[round] >> lane & 1u) != 0 && rank >= phase && place * gridDim.x == rank - phase) {
        due.slot[place] = slot[round];
        due.position[place] = static_cast<int32_t>(position);
        due.head[place] = static_cast<uint16_t>(head);
      }
      step_on(position, head);
    }
  }
  if (threadIdx.x == 0) {
    due.phase = (phase + gridDim.x - total % gridDim.x) % gridDim.x;
    due.scanned += kScanChunk;
  }
  __syncthreads();
  return total > phase ? (total - phase + gridDim.x - 1) / gridDim.x : 0;
}

// What is left of the block's list.
struct ListCursor {
  uint32_t next = 0;
  uint32_t length = 0;
};

// The block's next program. Uniform over the block.
__device__ __forceinline__ Program next_program(const Selection& selection, DueList& due, ListCursor& cursor) {
  if (selection.slot_index == nullptr) {
    const int64_t n = blockIdx.x + int64_t{cursor.next++} * gridDim.x;
    if (n >= selection.programs) return {-1, 0, 0};
    const int64_t position = n / selection.heads;
    return {position, position, n - position * selection.heads};
  }
  while (cursor.next == cursor.length) {
    if (due.scanned >= selection.programs) return {-1, 0, 0};
    __syncthreads();  // the list has been read
    cursor = {0, scan_chunk(selection, due)};
  }
  const uint32_t place = cursor.next++;
  return {due.position[place], due.slot[place], due.head[place]};
}

// ---- load -----------------------------------------------------------------------------------------------------------

template <int kColumns>
__device__ __forceinline__ void load_program(const FlushArguments& arguments, SharedStorage<kColumns>& smem, int turn) {
  Stage<kColumns>& stage = smem.stage[turn];
  char* const* const address = smem.address[turn];
  const int thread = threadIdx.x;
  const char* codes = address[kCodes];
#pragma unroll
  for (int i = 0; i < kDim * kDim / 16 / kThreads; ++i) {
    const int chunk = thread + i * kThreads;
    copy_async16(shared_address(stage.codes) + swizzled(chunk / 8, chunk % 8, kDim), codes + chunk * 16);
  }
  const int row = thread / 16;
  const uint32_t place = swizzled(row, thread % 16, 2 * kDim);
  static_assert(kEntries * kDim * 2 / 16 == kThreads);
  copy_async16(shared_address(stage.window_key) + place, address[kWindowKey] + thread * 16);
  copy_async16(shared_address(stage.window_update) + place, address[kWindowUpdate] + thread * 16);
  copy_async16(shared_address(stage.window_gate) + place, address[kWindowGate] + thread * 16);
  if (row < arguments.rank) {
    copy_async16(shared_address(stage.key_factor) + place,
                 address[kKeyFactor] + row * arguments.key_factor_row + (thread % 16) * 16);
    copy_async16(shared_address(stage.value_factor) + place,
                 address[kValueFactor] + row * arguments.value_factor_row + (thread % 16) * 16);
  }
  const int part = thread - 128;
  const int lane = thread % 32;
  if (part >= 96) {
    if (lane < 4) copy_async16(shared_address(stage.window_weight) + lane * 16, address[kWindowWeight] + lane * 16);
  } else if (part >= 64) {
    copy_async16(shared_address(stage.log_decay) + lane * 16, address[kLogDecay] + lane * 16);
  } else if (part >= 32) {
    copy_async16(shared_address(stage.value_scale) + lane * 16, address[kValueScale] + lane * 16);
  } else if (part >= 0) {
    copy_async16(shared_address(stage.key_scale) + lane * 16, address[kKeyScale] + lane * 16);
  }
}

// ---- prepare --------------------------------------------------------------------------------------------------------

// The key side of a warp's 16 columns as fragments: inner index 2 t, 2 t + 1 (and + 8), column slot g. [0] is column
// 2 g, [1] column 2 g + 1.
template <int kColumns>
struct KeySide {
  uint32_t window_hi[2][2];  // [column][inner half]
  uint32_t window_lo[2][2];
  uint32_t window_third[2][2];
  uint32_t factor[2][kColumns / 4];  // rank 4: inner indices (hi 0-3 | lo 0-3); rank 8: [0] hi 0-7, [1] lo 0-7
  uint32_t factor_third[2];          // rank 4: (third term 0-3 | zero)
  float code_scale[2];               // c
};

template <int kColumns>
__device__ __forceinline__ void prepare_keys(const Stage<kColumns>& stage, int warp, int g, int t,
                                             KeySide<kColumns>& keys) {
  const int column = 16 * warp + 2 * g;
  const int chunk = 2 * warp + g / 4;
  const int in_chunk = (g % 4) * 4;
  const auto load = [&](const uint16_t* rows, int row) {
    return *reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(rows) + swizzled(row, chunk, 2 * kDim) +
                                              in_chunk);
  };
  float2 gate[4];
  float2 key[4];
  float weight[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const int entry = 2 * t + (e & 1) + 8 * (e >> 1);
    gate[e] = unpack_half(load(stage.window_gate, entry));
    key[e] = unpack_bfloat(load(stage.window_key, entry));
    weight[e] = stage.window_weight[entry];
  }
  // D: the product of the gates after an entry, by multiplication alone.
  const auto suffix = [&](float value, float& whole) {
    const float one_on = __shfl_down_sync(kFullWarp, value, 1, 4);
    const float two_on = __shfl_down_sync(kFullWarp, value, 2, 4);
    const float three_on = __shfl_down_sync(kFullWarp, value, 3, 4);
    const float after = (t < 3 ? one_on : 1.0f) * (t < 2 ? two_on : 1.0f) * (t < 1 ? three_on : 1.0f);
    whole = __shfl_sync(kFullWarp, value * after, 0, 4);
    return after;
  };
  float2 after_high, after_low, whole_high, whole_low;
  after_high.x = suffix(gate[2].x * gate[3].x, whole_high.x);
  after_high.y = suffix(gate[2].y * gate[3].y, whole_high.y);
  after_low.x = suffix(gate[0].x * gate[1].x, whole_low.x) * whole_high.x;
  after_low.y = suffix(gate[0].y * gate[1].y, whole_low.y) * whole_high.y;
  const float2 decay[4] = {{gate[1].x * after_low.x, gate[1].y * after_low.y},
                           after_low,
                           {gate[3].x * after_high.x, gate[3].y * after_high.y},
                           after_high};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float2 value[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int e = 2 * half + i;
      const bool live = weight[e] != 0.0f;  // otherwise nothing, whatever the rows hold
      value[i].x = live ? weight[e] * key[e].x * decay[e].x : 0.0f;
      value[i].y = live ? weight[e] * key[e].y * decay[e].y : 0.0f;
    }
    keys.window_hi[0][half] = pack_bfloat(value[0].x, value[1].x);
    keys.window_hi[1][half] = pack_bfloat(value[0].y, value[1].y);
    const float2 hi_x = unpack_bfloat(keys.window_hi[0][half]);
    const float2 hi_y = unpack_bfloat(keys.window_hi[1][half]);
    const float2 rest_x = make_float2(value[0].x - hi_x.x, value[1].x - hi_x.y);
    const float2 rest_y = make_float2(value[0].y - hi_y.x, value[1].y - hi_y.y);
    keys.window_lo[0][half] = pack_bfloat(rest_x.x, rest_x.y);
    keys.window_lo[1][half] = pack_bfloat(rest_y.x, rest_y.y);
    const float2 lo_x = unpack_bfloat(keys.window_lo[0][half]);
    const float2 lo_y = unpack_bfloat(keys.window_lo[1][half]);
    keys.window_third[0][half] = pack_bfloat(rest_x.x - lo_x.x, rest_x.y - lo_x.y);
    keys.window_third[1][half] = pack_bfloat(rest_y.x - lo_y.x, rest_y.y - lo_y.y);
  }
  const float2 log_decay = *reinterpret_cast<const float2*>(stage.log_decay + column);
  const float2 key_scale = *reinterpret_cast<const float2*>(stage.key_scale + column);
  const float decay_x = expf(log_decay.x);
  const float decay_y = expf(log_decay.y);
  keys.code_scale[0] = divide_by_127(key_scale.x) * decay_x;
  keys.code_scale[1] = divide_by_127(key_scale.y) * decay_y;
  const int factor = 2 * t % kColumns;
  const float2 first = unpack_half(load(stage.key_factor, factor));
  const float2 second = unpack_half(load(stage.key_factor, factor + 1));
  const float old[2][2] = {{first.x * decay_x, second.x * decay_x}, {first.y * decay_y, second.y * decay_y}};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t hi = pack_bfloat(old[i][0], old[i][1]);
    const float2 rounded = unpack_bfloat(hi);
    const float2 rest = make_float2(old[i][0] - rounded.x, old[i][1] - rounded.y);
    const uint32_t lo = pack_bfloat(rest.x, rest.y);
    const float2 rounded_rest = unpack_bfloat(lo);
    keys.factor_third[i] = pack_bfloat(rest.x - rounded_rest.x, rest.y - rounded_rest.y);
    if constexpr (kColumns == 4) {
      keys.factor[i][0] = t < 2 ? hi : lo;
      if (t >= 2) keys.factor_third[i] = 0;
    } else {
      keys.factor[i][0] = hi;
      keys.factor[i][1] = lo;
    }
  }
}

// Rows of the value side that belong to the warp's 16 value channels: entries of weight 0 become zero, old factors
// become pairs of bfloats (exact: 11 bits).
template <int kColumns>
__device__ __forceinline__ void prepare_values(Stage<kColumns>& stage, SharedStorage<kColumns>& smem, int warp,
                                               int lane) {
  if (stage.window_weight[lane / 2] == 0.0f) {
    *reinterpret_cast<uint4*>(reinterpret_cast<char*>(stage.window_update) +
                              swizzled(lane / 2, 2 * warp + lane % 2, 2 * kDim)) = make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kColumns / 4; ++i) {
    const int row = lane / 8 + 4 * i;
    const int chunk = 2 * warp + (lane % 8) / 4;
    const int in_chunk = (lane % 4) * 4;
    const uint32_t pair = *reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(stage.value_factor) +
                                                             swizzled(row, chunk, 2 * kDim) + in_chunk);
    const float2 value = unpack_half(pair);
    const uint32_t hi = pack_bfloat(value.x, value.y);
    const float2 rounded = unpack_bfloat(hi);
    char* const rows = reinterpret_cast<char*>(smem.old_factor);
    *reinterpret_cast<uint32_t*>(rows + swizzled(row, chunk, 2 * kDim) + in_chunk) = hi;
    *reinterpret_cast<uint32_t*>(rows + swizzled(row + kColumns, chunk, 2 * kDim) + in_chunk) =
        pack_bfloat(value.x - rounded.x, value.y - rounded.y);
  }
  __syncwarp();
}

// ---- thin products of the rank-20 part ------------------------------------------------------------------------------

// A thin operand of 16 rows as fragments: (hi, lo) of every column side by side, and (third term, nothing).
template <int kColumns>
struct Operand {
  uint32_t split[kColumns / 4][2];
  uint32_t third[kColumns / 4][2];
};

// Sums hi and lo of an accumulator pair.
__device__ __forceinline__ float2 joined(const float (&c)[4]) { return make_float2(c[0] + c[1], c[2] + c[3]); }

// This warp's part of Aᵀ x: x as fragments over its own 16 value channels.
template <int kColumns>
__device__ __forceinline__ void project_values(const Stage<kColumns>& stage, SharedStorage<kColumns>& smem, int warp,
                                               int lane, const Operand<kColumns>& x) {
  uint32_t window[4];
  const int matrix = lane / 8;
  const int row = lane % 8 + (matrix & 1) * 8;
  const int chunk = 2 * warp + (matrix >> 1);
  load_matrices(window, shared_address(stage.window_update) + swizzled(row, chunk, 2 * kDim));
  uint32_t factor[4];
  if constexpr (kColumns == 4) {
    uint32_t rows[2];
    load_matrices(rows, shared_address(smem.old_factor) + swizzled(lane % 8, 2 * warp + (matrix & 1), 2 * kDim));
    factor[0] = rows[0];
    factor[1] = 0;
    factor[2] = rows[1];
    factor[3] = 0;
  } else {
    load_matrices(factor, shared_address(smem.old_factor) + swizzled(row, chunk, 2 * kDim));
  }
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
    float c[4] = {};
    multiply_bfloat(c, window[0], window[1], window[2], window[3], x.third[tile][0], x.third[tile][1]);
    multiply_bfloat(c, window[0], window[1], window[2], window[3], x.split[tile][0], x.split[tile][1]);
    smem.window_part[warp][tile][lane] = joined(c);
    float f[4] = {};
    multiply_bfloat(f, factor[0], factor[1], factor[2], factor[3], x.third[tile][0], x.third[tile][1]);
    multiply_bfloat(f, factor[0], factor[1], factor[2], factor[3], x.split[tile][0], x.split[tile][1]);
    smem.factor_part[warp][tile][lane] = joined(f);
  }
}

// This warp's part of B P: P as fragments over its own 16 key columns.
template <int kColumns>
__device__ __forceinline__ void project_keys(const KeySide<kColumns>& keys, SharedStorage<kColumns>& smem, int warp,
                                             int lane, const Operand<kColumns>& p) {
  uint32_t hi[4];
  uint32_t lo[4];
  uint32_t third[4];
  uint32_t factor[4];
  uint32_t factor_third[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    hi[i] = transpose_matrix(keys.window_hi[i >> 1][i & 1]);
    lo[i] = transpose_matrix(keys.window_lo[i >> 1][i & 1]);
    third[i] = transpose_matrix(keys.window_third[i >> 1][i & 1]);
    if (i < 2) factor_third[i] = transpose_matrix(keys.factor_third[i]);
    if constexpr (kColumns == 4) {
      factor[i] = (i & 1) != 0 ? 0 : transpose_matrix(keys.factor[i >> 1][0]);
    } else {
      factor[i] = transpose_matrix(keys.factor[i >> 1][i & 1]);
    }
  }
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
    float c[4] = {};
    multiply_bfloat(c, hi[0], hi[1], hi[2], hi[3], p.third[tile][0], p.third[tile][1]);
    multiply_bfloat(c, third[0], third[1], third[2], third[3], p.split[tile][0], p.split[tile][1]);
    multiply_bfloat(c, lo[0], lo[1], lo[2], lo[3], p.split[tile][0], p.split[tile][1]);
    multiply_bfloat(c, hi[0], hi[1], hi[2], hi[3], p.split[tile][0], p.split[tile][1]);
    smem.window_part[warp][tile][lane] = joined(c);
    float f[4] = {};
    multiply_bfloat(f, factor[0], factor[1], factor[2], factor[3], p.third[tile][0], p.third[tile][1]);
    multiply_bfloat(f, factor_third[0], 0, factor_third[1], 0, p.split[tile][0], p.split[tile][1]);
    multiply_bfloat(f, factor[0], factor[1], factor[2], factor[3], p.split[tile][0], p.split[tile][1]);
    smem.factor_part[warp][tile][lane] = joined(f);
  }
}

// Adds the warps' parts up, in warp order, and leaves them as thin operands: one thread an element.
template <int kColumns>
__device__ __forceinline__ void sum_parts(SharedStorage<kColumns>& smem) {
  constexpr int kTiles = kColumns / 4;
  const int thread = threadIdx.x;
  const auto element = [](const float2& pair, int half) { return half == 0 ? pair.x : pair.y; };
  if (thread < 64 * kTiles) {
    const int tile = thread / 64;
    const int lane = thread % 64 / 2;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += element(smem.window_part[warp][tile][lane], thread % 2);
    const int row = lane / 4 + 8 * (thread % 2);
    *reinterpret_cast<uint32_t*>(&smem.window_thin[0][tile][row][2 * (lane % 4)]) = split_bfloat(sum);
    *reinterpret_cast<uint32_t*>(&smem.window_thin[1][tile][row][2 * (lane % 4)]) = third_bfloat(sum);
  } else if (thread - 64 * kTiles < kColumns * kColumns) {
    const int i = thread - 64 * kTiles;
    const int old = i / kColumns;
    const int tile = i % kColumns / 4;
    const int column = i % 4;
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      if constexpr (kColumns == 4) {
        sum +=
            smem.factor_part[warp][tile][old * 4 + column].x + smem.factor_part[warp][tile][(old + 4) * 4 + column].x;
      } else {
        const float2 pair = smem.factor_part[warp][tile][old * 4 + column];
        sum += pair.x + pair.y;
      }
    }
    const uint32_t term[2] = {split_bfloat(sum), third_bfloat(sum)};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<uint32_t*>(&smem.factor_thin[i][tile][old][2 * column]) = term[i];
      *reinterpret_cast<uint32_t*>(&smem.factor_thin[i][tile][old + kColumns][2 * column]) = term[i];
    }
  }
}

// The summed thin operands as fragments, [2] and [3] their third terms; the inner index is the entry, or the old factor
// (hi rows, lo rows; at rank 4 the upper half is zero).
template <int kColumns>
__device__ __forceinline__ void load_thin(const SharedStorage<kColumns>& smem, int tile, int lane,
                                          uint32_t (&window)[4], uint32_t (&factor)[4]) {
  load_transposed(window, shared_address(&smem.window_thin[lane / 16][tile][lane % 16][0]));
  load_transposed(factor, shared_address(&smem.factor_thin[lane / 16][tile][lane % 16][0]));
}

// Bᵀ x for the warp's key columns.
template <int kColumns>
__device__ __forceinline__ void expand_keys(const KeySide<kColumns>& keys, const SharedStorage<kColumns>& smem,
                                            int lane, float (&result)[kColumns / 4][2]) {
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
    uint32_t window[4];
    uint32_t factor[4];
    load_thin(smem, tile, lane, window, factor);
    float c[4] = {};
    const auto window_term = [&](const uint32_t(&side)[2][2], uint32_t low, uint32_t high) {
      multiply_bfloat(c, side[0][0], side[1][0], side[0][1], side[1][1], low, high);
    };
    window_term(keys.window_hi, window[2], window[3]);
    window_term(keys.window_third, window[0], window[1]);
    window_term(keys.window_lo, window[0], window[1]);
    window_term(keys.window_hi, window[0], window[1]);
    float f[4] = {};
    const auto factor_term = [&](uint32_t low, uint32_t high) {
      multiply_bfloat(f, keys.factor[0][0], keys.factor[1][0], kColumns == 4 ? 0 : keys.factor[0][kColumns / 4 - 1],
                      kColumns == 4 ? 0 : keys.factor[1][kColumns / 4 - 1], low, high);
    };
    factor_term(factor[2], factor[3]);
    multiply_bfloat(f, keys.factor_third[0], keys.factor_third[1], 0, 0, factor[0], factor[1]);
    factor_term(factor[0], factor[1]);
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] += f[i];
    const float2 sum = joined(c);
    result[tile][0] = sum.x;
    result[tile][1] = sum.y;
  }
}

// A x for the warp's value channels.
template <int kColumns>
__device__ __forceinline__ void expand_values(const Stage<kColumns>& stage, const SharedStorage<kColumns>& smem,
                                              int warp, int lane, float (&result)[kColumns / 4][2]) {
  const int matrix = lane / 8;
  const int row = lane % 8 + (matrix >> 1) * 8;
  const int chunk = 2 * warp + (matrix & 1);
  uint32_t update[4];
  load_transposed(update, shared_address(stage.window_update) + swizzled(row, chunk, 2 * kDim));
  uint32_t old[4] = {};
  if constexpr (kColumns == 4) {
    uint32_t rows[2];
    load_transposed(rows, shared_address(smem.old_factor) + swizzled(lane % 8, chunk, 2 * kDim));
    old[0] = rows[0];
    old[1] = rows[1];
  } else {
    load_transposed(old, shared_address(smem.old_factor) + swizzled(row, chunk, 2 * kDim));
  }
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
    uint32_t window[4];
    uint32_t factor[4];
    load_thin(smem, tile, lane, window, factor);
    float c[4] = {};
    multiply_bfloat(c, update[0], update[1], update[2], update[3], window[2], window[3]);
    multiply_bfloat(c, update[0], update[1], update[2], update[3], window[0], window[1]);
    multiply_bfloat(c, old[0], old[1], old[2], old[3], factor[2], factor[3]);
    multiply_bfloat(c, old[0], old[1], old[2], old[3], factor[0], factor[1]);
    const float2 sum = joined(c);
    result[tile][0] = sum.x;
    result[tile][1] = sum.y;
  }
}

// ---- products with the codes ----------------------------------------------------------------------------------------

// Cᵀ x for the warp's key columns, x in smem.thin.
template <int kColumns>
__device__ __forceinline__ void multiply_codes_transposed(const Stage<kColumns>& stage,
                                                          const SharedStorage<kColumns>& smem, int warp, int lane,
                                                          float (&result)[kColumns / 4][2]) {
  constexpr int kTiles = kColumns / 4;
  float c[kTiles][2][4] = {};  // two chains
#pragma unroll
  for (int rows = 0; rows < kDim; rows += 32) {
    uint32_t codes[4];
    load_transposed(codes, shared_address(stage.codes) + swizzled(rows + lane, warp, kDim));
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] ^= kFlipCodes;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      uint32_t x[4];
      load_transposed(x, shared_address(&smem.thin[tile][rows + lane][0]));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        multiply_half(c[tile][half], codes_to_halves<0x4240>(codes[2 * half]), codes_to_halves<0x4341>(codes[2 * half]),
                      codes_to_halves<0x4240>(codes[2 * half + 1]), codes_to_halves<0x4341>(codes[2 * half + 1]),
                      x[2 * half], x[2 * half + 1]);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const float2 even = joined(c[tile][0]);
    const float2 odd = joined(c[tile][1]);
    result[tile][0] = even.x + odd.x;
    result[tile][1] = even.y + odd.y;
  }
}

// This warp's part of C x, x as fragments over its own 16 key columns, times `unscale`.
template <int kColumns>
__device__ __forceinline__ void multiply_codes(const Stage<kColumns>& stage, SharedStorage<kColumns>& smem, int warp,
                                               int lane, const uint32_t (&x)[kColumns / 4][2],
                                               const float (&unscale)[kColumns / 4]) {
#pragma unroll
  for (int rows = 0; rows < kDim; rows += 32) {
    uint32_t codes[4];
    load_matrices(codes, shared_address(stage.codes) + swizzled(rows + lane, warp, kDim));
#pragma unroll
    for (int i = 0; i < 4; ++i) codes[i] ^= kFlipCodes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int tile = 0; tile < kColumns / 4; ++tile) {
        float c[4] = {};
        multiply_half(c, codes_to_halves<0x4240>(codes[2 * half]), codes_to_halves<0x4240>(codes[2 * half + 1]),
                      codes_to_halves<0x4341>(codes[2 * half]), codes_to_halves<0x4341>(codes[2 * half + 1]),
                      x[tile][0], x[tile][1]);
        const float2 sum = joined(c);
        smem.product[warp][tile][rows / 16 + half][lane] = make_float2(sum.x * unscale[tile], sum.y * unscale[tile]);
      }
    }
  }
}

// ---- orthonormalization ---------------------------------------------------------------------------------------------

// A thin matrix, two rows a thread: [tile][row], factor t + 4 tile.
template <int kColumns>
using Thin = float[kColumns / 4][2];

__device__ __forceinline__ float warp_largest(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, step));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(kFullWarp, x, step);
  return x;
}

// The warp's part of the Gram matrix, of its rows under a power of two of their own.
template <int kColumns>
__device__ __forceinline__ void write_gram(const Thin<kColumns>& thin, SharedStorage<kColumns>& smem, int buffer,
                                           int warp, int lane) {
  constexpr int kTiles = kColumns / 4;
  float largest = 0;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) largest = fmaxf(largest, fmaxf(fabsf(thin[tile][0]), fabsf(thin[tile][1])));
  const int field = scale_field(warp_largest(largest), 0);
  const float scale = power_of_field(field);
  float own[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    own[tile][0] = thin[tile][0] * scale;
    own[tile][1] = thin[tile][1] * scale;
  }
  const int t = lane % 4;
#pragma unroll
  for (int a = 0; a < kTiles; ++a) {
#pragma unroll
    for (int b = 0; b < kTiles; ++b) {
      float product[4];  // with the column of lane t ^ x
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        product[x] =
            own[a][0] * __shfl_xor_sync(kFullWarp, own[b][0], x) + own[a][1] * __shfl_xor_sync(kFullWarp, own[b][1], x);
      }
      // Halve the products with each exchange: the lane ends with one of the four.
      const bool upper = (lane & 16) != 0;
      const bool second = (lane & 8) != 0;
      const float even =
          (upper ? product[2] : product[0]) + __shfl_xor_sync(kFullWarp, upper ? product[0] : product[2], 16);
      const float odd =
          (upper ? product[3] : product[1]) + __shfl_xor_sync(kFullWarp, upper ? product[1] : product[3], 16);
      float sum = (second ? odd : even) + __shfl_xor_sync(kFullWarp, second ? even : odd, 8);
      sum += __shfl_xor_sync(kFullWarp, sum, 4);
      const int x = lane >> 4 << 1 | (lane >> 3 & 1);
      if ((lane & 4) == 0) smem.gram_part[buffer][warp][(t + 4 * a) * kColumns + (t ^ x) + 4 * b] = sum;
    }
  }
  if (lane == 0) smem.gram_field[buffer][warp] = field;
}

// How the columns of a thin matrix depend on one another.
enum class Conditioning { kOrthogonal, kIndependent, kUnclear };

// The lane's rows of the inverse of a Cholesky factor: element [a][b][x] is row t + 4 a, column (t ^ x) + 4 b.
template <int kColumns>
using InverseRows = float[kColumns / 4][kColumns / 4][4];

// The sum of the Gram parts and from it the inverse of the Cholesky factor; `scale` is the power of two that the thin
// matrix has in it. Uniform over the block: every warp computes the same from the same numbers.
template <int kColumns>
__device__ __forceinline__ Conditioning factor_gram(const SharedStorage<kColumns>& smem, int buffer, int lane, int rank,
                                                    InverseRows<kColumns>& rows, float& scale) {
  constexpr int kTiles = kColumns / 4;
  // Relative to the column: fp32 sums resolve a pivot down to about 1e-6 of it.
  constexpr float kClearPivot = 1e-4f;
  constexpr float kOrthogonalPivot = 4e-3f;
  // Relative to the largest column, squared: far above kDependentNorm of core/numerics.h.
  constexpr float kClearNorm = 1e-5f;
  const int t = lane % 4;
  // Lane 4 w + t starts from rows t (and t + 4) of warp w's part.
  const int own_field = smem.gram_field[buffer][lane / 4];
  int field = own_field;
#pragma unroll
  for (int step = 4; step < 32; step *= 2) field = min(field, __shfl_xor_sync(kFullWarp, field, step));
  scale = power_of_field(field);
  const float weight = power_of_field(127 + 2 * max(field - own_field, -60));
  float gram[kTiles][kColumns];
#pragma unroll
  for (int a = 0; a < kTiles; ++a) {
#pragma unroll
    for (int j = 0; j < kColumns; j += 4) {
      const float4 part =
          *reinterpret_cast<const float4*>(&smem.gram_part[buffer][lane / 4][(t + 4 * a) * kColumns + j]);
      const float value[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float sum = value[i] * weight;
#pragma unroll
        for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(kFullWarp, sum, step);
        gram[a][j + i] = sum;
      }
    }
  }
  float lower[kColumns][kColumns];
  float inverse[kColumns][kColumns] = {};
  float diagonal[kColumns];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    diagonal[i] = __shfl_sync(kFullWarp, gram[i / 4][i], i % 4);
    largest = fmaxf(largest, diagonal[i]);
  }
  bool clear = true;
  bool orthogonal = true;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      float rest = j == i ? diagonal[i] : __shfl_sync(kFullWarp, gram[i / 4][j], i % 4);
#pragma unroll
      for (int m = 0; m < j; ++m) rest -= lower[i][m] * lower[j][m];
      if (j < i) {
        lower[i][j] = rest * inverse[j][j];
      } else {
        const float whole = diagonal[i];
        const bool used = i < rank;
        const bool good = rest >= kClearPivot * whole && whole >= kClearNorm * largest && whole > 0.0f;
        clear = clear && (good || !used);
        orthogonal = orthogonal && (rest >= kOrthogonalPivot * whole || !used);
        inverse[i][i] = good && used ? rsqrtf(rest) : 0.0f;
      }
    }
#pragma unroll
    for (int j = 0; j < i; ++j) {
      float sum = 0;
#pragma unroll
      for (int m = j; m < i; ++m) sum += lower[i][m] * inverse[m][j];
      inverse[i][j] = -sum * inverse[i][i];
    }
  }
#pragma unroll
  for (int a = 0; a < kTiles; ++a) {
#pragma unroll
    for (int b = 0; b < kTiles; ++b) {
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        const float first = t == 0 ? inverse[4 * a][x + 4 * b] : inverse[4 * a + 1][(1 ^ x) + 4 * b];
        const float last = t == 2 ? inverse[4 * a + 2][(2 ^ x) + 4 * b] : inverse[4 * a + 3][(3 ^ x) + 4 * b];
        rows[a][b][x] = t < 2 ? first : last;
      }
    }
  }
  return !clear ? Conditioning::kUnclear : orthogonal ? Conditioning::kOrthogonal : Conditioning::kIndependent;
}

// factor_gram by one warp for the block. Contains a barrier.
template <int kColumns>
__device__ __forceinline__ Conditioning share_factor(SharedStorage<kColumns>& smem, int buffer, int warp, int lane,
                                                     int rank, InverseRows<kColumns>& rows, float& scale) {
  constexpr int kTiles = kColumns / 4;
  if (warp == 0) {
    const Conditioning conditioning = factor_gram(smem, buffer, lane, rank, rows, scale);
    if (lane < 4) {
#pragma unroll
      for (int i = 0; i < kTiles * kTiles; ++i) {
        const float(&row)[4] = rows[i / kTiles][i % kTiles];
        *reinterpret_cast<float4*>(smem.inverse[i / kTiles][i % kTiles][lane]) =
            make_float4(row[0], row[1], row[2], row[3]);
      }
    }
    if (lane == 0) {
      smem.inverse_scale = scale;
      smem.conditioning = static_cast<int>(conditioning);
    }
  }
  __syncthreads();
  scale = smem.inverse_scale;
#pragma unroll
  for (int i = 0; i < kTiles * kTiles; ++i) {
    const float4 row = *reinterpret_cast<const float4*>(smem.inverse[i / kTiles][i % kTiles][lane % 4]);
    float(&to)[4] = rows[i / kTiles][i % kTiles];
    to[0] = row.x;
    to[1] = row.y;
    to[2] = row.z;
    to[3] = row.w;
  }
  return static_cast<Conditioning>(smem.conditioning);
}

// thin = thin L^-T.
template <int kColumns>
__device__ __forceinline__ void apply_inverse(Thin<kColumns>& thin, const InverseRows<kColumns>& rows, float scale) {
  constexpr int kTiles = kColumns / 4;
  float result[kTiles][2] = {};
#pragma unroll
  for (int b = 0; b < kTiles; ++b) {
    const float own0 = thin[b][0] * scale;
    const float own1 = thin[b][1] * scale;
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      const float other0 = __shfl_xor_sync(kFullWarp, own0, x);
      const float other1 = __shfl_xor_sync(kFullWarp, own1, x);
#pragma unroll
      for (int a = 0; a < kTiles; ++a) {
        result[a][0] = fmaf(other0, rows[a][b][x], result[a][0]);
        result[a][1] = fmaf(other1, rows[a][b][x], result[a][1]);
      }
    }
  }
#pragma unroll
  for (int a = 0; a < kTiles; ++a) {
    thin[a][0] = result[a][0];
    thin[a][1] = result[a][1];
  }
}

// Gram-Schmidt with every projection applied twice, by one warp, on smem.column: for columns that may depend on one
// another. Such a column becomes zero: see kDependentNorm and kSecondProjectionLoss in core/numerics.h.
template <int kColumns>
__device__ __noinline__ void orthonormalize_columns(SharedStorage<kColumns>& smem, int rank) {
  constexpr float kDependentNorm = 4e-6f;
  constexpr float kSecondProjectionLoss = 0.5f;
  const int lane = threadIdx.x % 32;
  float thin[kColumns][4];
  float largest = 0;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      thin[r][i] = smem.column[lane + 32 * i][r];
      largest = fmaxf(largest, fabsf(thin[r][i]));
    }
  }
  const float scale = power_of_field(scale_field(warp_largest(largest), 0));
  const auto dot = [](const float(&a)[4], const float(&b)[4]) {
    return warp_sum(a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3]);
  };
  float largest_norm = 0;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) thin[r][i] *= scale;
    largest_norm = fmaxf(largest_norm, sqrtf(dot(thin[r], thin[r])));
  }
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    float before = 0;
    float norm = 0;
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
      float projection[kColumns];
#pragma unroll
      for (int earlier = 0; earlier < r; ++earlier) projection[earlier] = dot(thin[earlier], thin[r]);
#pragma unroll
      for (int earlier = 0; earlier < r; ++earlier) {
#pragma unroll
        for (int i = 0; i < 4; ++i) thin[r][i] = fmaf(-projection[earlier], thin[earlier][i], thin[r][i]);
      }
      before = norm;
      norm = sqrtf(dot(thin[r], thin[r]));
    }
    const bool dependent = r >= rank || norm <= kDependentNorm * largest_norm || norm < kSecondProjectionLoss * before;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      thin[r][i] = dependent ? 0.0f : thin[r][i] / norm;
      smem.column[lane + 32 * i][r] = thin[r][i];
    }
  }
}

// thin = orth(thin). The Gram parts are in `buffer`, and a barrier has passed since. Uses no barrier unless the columns
// are ill conditioned. `pass` is false where the columns only have to be well conditioned, not orthonormal.
template <int kColumns>
__device__ __forceinline__ void orthonormalize(Thin<kColumns>& thin, SharedStorage<kColumns>& smem, int buffer,
                                               int warp, int lane, int rank, bool exact) {
  const int g = lane / 4;
  const int t = lane % 4;
  float scale;
  InverseRows<kColumns> rows;
  const Conditioning conditioning = share_factor(smem, buffer, warp, lane, rank, rows, scale);
  if (conditioning == Conditioning::kUnclear) {
    __syncthreads();  // smem.product has been read
#pragma unroll
    for (int tile = 0; tile < kColumns / 4; ++tile) {
      smem.column[16 * warp + 2 * g][t + 4 * tile] = thin[tile][0];
      smem.column[16 * warp + 2 * g + 1][t + 4 * tile] = thin[tile][1];
    }
    __syncthreads();
    if (warp == 0) orthonormalize_columns(smem, rank);
    __syncthreads();
#pragma unroll
    for (int tile = 0; tile < kColumns / 4; ++tile) {
      thin[tile][0] = smem.column[16 * warp + 2 * g][t + 4 * tile];
      thin[tile][1] = smem.column[16 * warp + 2 * g + 1][t + 4 * tile];
    }
    __syncthreads();  // before smem.product is written
    return;
  }
  apply_inverse<kColumns>(thin, rows, scale);
  if (!exact || conditioning == Conditioning::kOrthogonal) return;
  write_gram<kColumns>(thin, smem, buffer ^ 1, warp, lane);
  __syncthreads();
  if (share_factor(smem, buffer ^ 1, warp, lane, rank, rows, scale) == Conditioning::kUnclear) return;
  apply_inverse<kColumns>(thin, rows, scale);
}

// ---- compress and quantize ------------------------------------------------------------------------------------------

// E of the warp's 16 key columns: [row tile][column tile][accumulator]. Column tile i, accumulator j: column 4 t + i +
// 2 (j % 2) of row 16 tile + g + 8 (j / 2).
using Residual = float[8][2][4];

// New factors as the key side of the last product: inner index 2 t, 2 t + 1; columns 2 g and 2 g + 1.
template <int kColumns>
__device__ __forceinline__ void key_factor_fragments(const __half (&factor)[kColumns / 4][2], int t,
                                                     uint32_t (&fragment)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t own = kColumns == 4 ? pack_half(factor[0][i], __half(__ushort_as_half(0)))
                                       : pack_half(factor[0][i], factor[kColumns / 4 - 1][i]);
    const uint32_t first = __shfl_sync(kFullWarp, own, 2 * t % 4, 4);
    const uint32_t second = __shfl_sync(kFullWarp, own, 2 * t % 4 + 1, 4);
    // Low halves hold factors 0-3, high halves 4-7 (zero at rank 4).
    fragment[i] = t < 2 ? __byte_perm(first, second, 0x5410) : __byte_perm(first, second, 0x7632);
  }
}

template <int kColumns>
__device__ __forceinline__ void compute_residual(const Stage<kColumns>& stage, const SharedStorage<kColumns>& smem,
                                                 const KeySide<kColumns>& keys, const float (&code_scale)[4],
                                                 const uint32_t (&new_keys)[2], int warp, int lane,
                                                 Residual& residual) {
  const int g = lane / 4;
  const int matrix = lane / 8;
  const int window_row = lane % 8 + (matrix >> 1) * 8;
  const int factor_row = lane % kColumns % 8 + (matrix >> 1) * kColumns;
#pragma unroll
  for (int pair = 0; pair < 4; ++pair) {
    uint32_t codes[4];
    load_matrices(codes, shared_address(stage.codes) + swizzled(32 * pair + lane, warp, kDim));
    uint32_t new_values[4];
    load_matrices(new_values, shared_address(&smem.new_factor[32 * pair + lane][0]));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int tile = 2 * pair + half;
      float(&e)[2][4] = residual[tile];
#pragma unroll
      for (int low = 0; low < 2; ++low) {
        const uint32_t flipped = codes[2 * half + low] ^ kFlipCodes;
        const float row_scale = stage.value_scale[16 * tile + g + 8 * low];
        e[0][2 * low] = code_to_float<0>(flipped) * code_scale[0] * row_scale;
        e[1][2 * low] = code_to_float<1>(flipped) * code_scale[1] * row_scale;
        e[0][2 * low + 1] = code_to_float<2>(flipped) * code_scale[2] * row_scale;
        e[1][2 * low + 1] = code_to_float<3>(flipped) * code_scale[3] * row_scale;
      }
      uint32_t update[4];
      load_transposed(update,
                      shared_address(stage.window_update) + swizzled(window_row, 2 * tile + (matrix & 1), 2 * kDim));
      uint32_t old[4];
      load_transposed(old, shared_address(smem.old_factor) + swizzled(factor_row, 2 * tile + (matrix & 1), 2 * kDim));
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        multiply_bfloat(e[i], update[0], update[1], update[2], update[3], keys.window_hi[i][0], keys.window_hi[i][1]);
        multiply_bfloat(e[i], update[0], update[1], update[2], update[3], keys.window_lo[i][0], keys.window_lo[i][1]);
        if constexpr (kColumns == 4) {
          multiply_bfloat(e[i], old[0], old[1], old[2], old[3], keys.factor[i][0], keys.factor[i][0]);
        } else {
          multiply_bfloat(e[i], old[0], old[1], old[0], old[1], keys.factor[i][0], keys.factor[i][1]);
          multiply_bfloat(e[i], old[2], old[3], old[2], old[3], keys.factor[i][0], keys.factor[i][1]);
        }
        multiply_half(e[i], new_values[2 * half], new_values[2 * half + 1], new_keys[i]);
      }
    }
  }
}

// Makes E / s_k' of E. The lane's return value is s_k' of column 4 t + own_column(lane); `non_finite` when that
// column's sum is not finite, which is when the state was not.
__device__ __forceinline__ int own_column(int lane) { return 2 * (lane >> 4) + (lane >> 3 & 1); }

__device__ __forceinline__ float scale_columns(Residual& residual, int lane, bool& non_finite) {
  constexpr float kScaleFloor = 1e-12f;
  float sum[4];
#pragma unroll
  for (int column = 0; column < 4; ++column) {
    const int i = column & 1;
    const int j = column >> 1;
    float even = 0;
    float odd = 0;
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      even += fabsf(residual[tile][i][j]);
      odd += fabsf(residual[tile][i][j + 2]);
    }
    sum[column] = even + odd;
  }
  // Halve the columns with each exchange.
  const bool upper = (lane & 16) != 0;
  const bool second = (lane & 8) != 0;
  const float a = (upper ? sum[2] : sum[0]) + __shfl_xor_sync(kFullWarp, upper ? sum[0] : sum[2], 16);
  const float b = (upper ? sum[3] : sum[1]) + __shfl_xor_sync(kFullWarp, upper ? sum[1] : sum[3], 16);
  float own = (second ? b : a) + __shfl_xor_sync(kFullWarp, second ? a : b, 8);
  own += __shfl_xor_sync(kFullWarp, own, 4);
  non_finite = !(own <= 3.402823466e38f);
  const float root = sqrtf(own * (1.0f / kDim));
  const float key_scale = root < kScaleFloor ? kScaleFloor : root;
  const float own_inverse = 1.0f / key_scale;
#pragma unroll
  for (int column = 0; column < 4; ++column) {
    const int i = column & 1;
    const int j = column >> 1;
    const float inverse = __shfl_sync(kFullWarp, own_inverse, (lane & 3) + 8 * i + 16 * j);
#pragma unroll
    for (int tile = 0; tile < 8; ++tile) {
      residual[tile][i][j] *= inverse;
      residual[tile][i][j + 2] *= inverse;
    }
  }
  return key_scale;
}

// The largest |E| / s_k' of every row into smem.row_largest; the order of the maxima does not matter.
template <int kColumns>
__device__ __forceinline__ void find_row_maxima(const Residual& residual, SharedStorage<kColumns>& smem, int lane) {
  const int g = lane / 4;
  const int t = lane % 4;
  float largest[16];
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
#pragma unroll
    for (int low = 0; low < 2; ++low) {
      const float* const even = &residual[tile][0][2 * low];
      const float* const odd = &residual[tile][1][2 * low];
      largest[2 * tile + low] = fmaxf(fmaxf(fabsf(even[0]), fabsf(even[1])), fmaxf(fabsf(odd[0]), fabsf(odd[1])));
    }
  }
  // Halve the rows with each exchange: lane t ends with rows 4 t ... 4 t + 3 of the 16.
  float half[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float sent = t < 2 ? largest[i + 8] : largest[i];
    const float kept = t < 2 ? largest[i] : largest[i + 8];
    half[i] = fmaxf(kept, __shfl_xor_sync(kFullWarp, sent, 2));
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sent = t % 2 == 0 ? half[i + 4] : half[i];
    const float kept = t % 2 == 0 ? half[i] : half[i + 4];
    const float whole = fmaxf(kept, __shfl_xor_sync(kFullWarp, sent, 1));
    const int number = 4 * t + i;  // 2 tile + low
    atomicMax(&smem.row_largest[8 * number + g], __float_as_uint(whole));
  }
}

// codes' = round(127 E / (s_k' s_v')) to smem, in the place of the old codes. Adding 1.5 * 2^23 rounds half to even and
// leaves the code in the low byte.
template <int kColumns>
__device__ __forceinline__ void quantize(const Residual& residual, Stage<kColumns>& stage,
                                         const SharedStorage<kColumns>& smem, int warp, int lane) {
  constexpr float kRounder = 12582912.0f;
  const int g = lane / 4;
  const int t = lane % 4;
  const bool finite = smem.non_finite == 0;
#pragma unroll
  for (int tile = 0; tile < 8; ++tile) {
#pragma unroll
    for (int low = 0; low < 2; ++low) {
      const int row = 16 * tile + g + 8 * low;
      const float scale = smem.code_scale[row];
      const auto code = [&](float e) { return __float_as_uint(fmaf(e, scale, kRounder)); };
      const uint32_t first = __byte_perm(code(residual[tile][0][2 * low]), code(residual[tile][1][2 * low]), 0x0040);
      const uint32_t second =
          __byte_perm(code(residual[tile][0][2 * low + 1]), code(residual[tile][1][2 * low + 1]), 0x0040);
      const uint32_t codes = __byte_perm(first, second, 0x5410);
      *reinterpret_cast<uint32_t*>(stage.codes + swizzled(row, warp, kDim) + 4 * t) = finite ? codes : 0u;
    }
  }
}

// ---- store ----------------------------------------------------------------------------------------------------------

template <int kColumns>
__device__ __forceinline__ void store_codes(const Stage<kColumns>& stage, char* codes) {
#pragma unroll
  for (int i = 0; i < kDim * kDim / 16 / kThreads; ++i) {
    const int chunk = threadIdx.x + i * kThreads;
    *reinterpret_cast<uint4*>(codes + chunk * 16) =
        *reinterpret_cast<const uint4*>(stage.codes + swizzled(chunk / 8, chunk % 8, kDim));
  }
}

// What marks a window as empty: weights 0, gates 1, log-decay 0.
__device__ __forceinline__ void reset_window(char* const* address) {
  constexpr uint32_t kOnes = 0x3C003C00u;
  const int thread = threadIdx.x;
  reinterpret_cast<uint4*>(address[kWindowGate])[thread] = make_uint4(kOnes, kOnes, kOnes, kOnes);
  if (thread < 32) {
    reinterpret_cast<uint4*>(address[kLogDecay])[thread] = make_uint4(0, 0, 0, 0);
  } else if (thread < 36) {
    reinterpret_cast<uint4*>(address[kWindowWeight])[thread - 32] = make_uint4(0, 0, 0, 0);
  }
}

// ---- the kernel -----------------------------------------------------------------------------------------------------

// What a thread keeps of q0 [V, R], every column under a power of two: only the directions matter.
template <int kColumns>
struct StartBasis {
  float value[kColumns / 4][2];  // rows 16 w + g and + 8
  Operand<kColumns> operand;     // the same, inner index the row
};

// Two thin rows a thread as the operand of a product over the warp's 16 rows.
template <int kColumns>
__device__ __forceinline__ void to_operand(const Thin<kColumns>& thin, Operand<kColumns>& operand) {
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      operand.split[tile][i] = transpose_matrix(split_bfloat(thin[tile][i]));
      operand.third[tile][i] = transpose_matrix(third_bfloat(thin[tile][i]));
    }
  }
}

template <int kColumns>
__device__ __forceinline__ void load_start_basis(const FlushArguments& arguments, SharedStorage<kColumns>& smem,
                                                 int warp, int lane, StartBasis<kColumns>& start) {
  const int g = lane / 4;
  const int t = lane % 4;
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
    const int r = t + 4 * tile;
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 16 * warp + g + 8 * i;
      start.value[tile][i] = r < arguments.rank ? arguments.start_basis[row * arguments.rank + r] : 0.0f;
      largest = fmaxf(largest, fabsf(start.value[tile][i]));
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, step));
    if (g == 0) smem.start_largest[warp][r] = largest;
  }
  __syncthreads();
#pragma unroll
  for (int tile = 0; tile < kColumns / 4; ++tile) {
    float largest = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) largest = fmaxf(largest, smem.start_largest[other][t + 4 * tile]);
    const float scale = power_of_field(scale_field(largest, 0));
    start.value[tile][0] *= scale;
    start.value[tile][1] *= scale;
  }
  to_operand<kColumns>(start.value, start.operand);
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, kColumns == 4 ? kBlocksPerSm : 1)
    flush_kernel(const __grid_constant__ FlushArguments arguments) {
  extern __shared__ __align__(128) char shared_bytes[];
  auto& smem = *reinterpret_cast<SharedStorage<kColumns>*>(shared_bytes);
  constexpr int kTiles = kColumns / 4;
  const int warp = __shfl_sync(kFullWarp, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;

  if (threadIdx.x < kTensorCount) smem.tensor[threadIdx.x] = arguments.tensor[threadIdx.x];
  if (threadIdx.x == 0) {
    smem.due.scanned = 0;
    smem.due.phase = blockIdx.x;
  }
  __syncthreads();
  ListCursor cursor;
  Program program = next_program(arguments.selection, smem.due, cursor);
  if (program.position < 0) return;
  if (threadIdx.x < kTensorCount) smem.address[0][threadIdx.x] = at(smem.tensor[threadIdx.x], program);
  __syncthreads();
  load_program(arguments, smem, 0);
  commit_copies();

  // What stays zero: factors beyond the rank, and unused inner indices.
  for (int i = threadIdx.x; i < kColumns * kDim; i += kThreads) {
    if (i / kDim < arguments.rank) continue;
    for (Stage<kColumns>& stage : smem.stage) stage.key_factor[i] = stage.value_factor[i] = 0;
  }
  for (int i = threadIdx.x; i < kDim * 8; i += kThreads) smem.new_factor[i / 8][i % 8] = 0;
  for (int i = threadIdx.x; i < 2 * kTiles * 16 * 8; i += kThreads) (&smem.factor_thin[0][0][0][0])[i] = 0;
  StartBasis<kColumns> start;
  load_start_basis(arguments, smem, warp, lane, start);

  for (int turn = 0; program.position >= 0; turn ^= 1) {
    Stage<kColumns>& stage = smem.stage[turn];
    wait_for_copies();
    __syncthreads();
    const Program next = next_program(arguments.selection, smem.due, cursor);
    if (threadIdx.x < kTensorCount && next.position >= 0) {
      smem.address[turn ^ 1][threadIdx.x] = at(smem.tensor[threadIdx.x], next);
    }
    char* const* const address = smem.address[turn];

    // Prepare: both sides of the rank-20 part, s_v q0, Aᵀ q0.
    KeySide<kColumns> keys;
    prepare_keys(stage, warp, g, t, keys);
    prepare_values(stage, smem, warp, lane);
    const float4 scales = *reinterpret_cast<const float4*>(stage.value_scale + 4 * lane);
    const float largest_scale =
        warp_largest(fmaxf(fmaxf(fabsf(scales.x), fabsf(scales.y)), fmaxf(fabsf(scales.z), fabsf(scales.w))));
    const int value_field = scale_field(largest_scale, 13);  // thin values are below 2
    const float row_scale[2] = {stage.value_scale[16 * warp + g], stage.value_scale[16 * warp + g + 8]};
    const auto write_thin = [&](const Thin<kColumns>& x) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float scaled = row_scale[i] * power_of_field(value_field) * x[tile][i];
          *reinterpret_cast<uint32_t*>(&smem.thin[tile][16 * warp + g + 8 * i][2 * t]) = split_half(scaled);
        }
      }
    };
    write_thin(start.value);
    project_values(stage, smem, warp, lane, start.operand);
    if (threadIdx.x < kDim) smem.row_largest[threadIdx.x] = 0x2B8CBCCCu;  // 1e-12
    if (threadIdx.x == 0) smem.non_finite = 0;
    if (arguments.selection.slot_index != nullptr) reset_window(address);
    __syncthreads();
    if (next.position >= 0) load_program(arguments, smem, turn ^ 1);
    commit_copies();

    // Z = Sᵀ q0, P = orth Z.
    Thin<kColumns> thin;
    const auto multiply_transposed = [&] {
      float codes_part[kTiles][2];
      float rank_part[kTiles][2];
      sum_parts(smem);
      multiply_codes_transposed(stage, smem, warp, lane, codes_part);
      __syncthreads();
      expand_keys(keys, smem, lane, rank_part);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float unscaled = codes_part[tile][i] * inverse_of_field(value_field);
          thin[tile][i] = fmaf(unscaled, keys.code_scale[i], rank_part[tile][i]);
        }
      }
    };
    multiply_transposed();
    write_gram<kColumns>(thin, smem, 0, warp, lane);
    __syncthreads();
    orthonormalize<kColumns>(thin, smem, 0, warp, lane, arguments.rank, false);

    // Y = S P: every warp's part over its own key columns, then the sum over the warps for its own rows.
    {
      uint32_t halves[kTiles][2];
      float unscale[kTiles];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float x0 = thin[tile][0] * keys.code_scale[0];
        const float x1 = thin[tile][1] * keys.code_scale[1];
        float largest = fmaxf(fabsf(x0), fabsf(x1));
#pragma unroll
        for (int step = 4; step < 32; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(kFullWarp, largest, step));
        const int field = scale_field(largest, 14);
        unscale[tile] = inverse_of_field(field);
        halves[tile][0] = transpose_matrix(split_half(x0 * power_of_field(field)));
        halves[tile][1] = transpose_matrix(split_half(x1 * power_of_field(field)));
      }
      multiply_codes(stage, smem, warp, lane, halves, unscale);
      Operand<kColumns> operand;
      to_operand<kColumns>(thin, operand);
      project_keys(keys, smem, warp, lane, operand);
    }
    __syncthreads();
    sum_parts(smem);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int other = 0; other < kWarps; ++other) {
        const float2 part = smem.product[other][tile][warp][lane];
        sum.x += part.x;
        sum.y += part.y;
      }
      thin[tile][0] = sum.x * row_scale[0];
      thin[tile][1] = sum.y * row_scale[1];
    }
    __syncthreads();
    {
      float rank_part[kTiles][2];
      expand_values(stage, smem, warp, lane, rank_part);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        thin[tile][0] += rank_part[tile][0];
        thin[tile][1] += rank_part[tile][1];
      }
    }
    write_gram<kColumns>(thin, smem, 1, warp, lane);
    __syncthreads();
    orthonormalize<kColumns>(thin, smem, 1, warp, lane, arguments.rank, true);

    // U = Sᵀ Q, and q'.
    write_thin(thin);
    {
      Operand<kColumns> operand;
      to_operand<kColumns>(thin, operand);
      project_values(stage, smem, warp, lane, operand);
      char* const value_factor = address[kTargetValueFactor];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int r = t + 4 * tile;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = 16 * warp + g + 8 * i;
          const uint16_t rounded = __half_as_ushort(saturate_to_half(thin[tile][i]));
          smem.new_factor[row][r] = rounded ^ 0x8000u;
          if (r < arguments.rank) {
            reinterpret_cast<uint16_t*>(value_factor + r * arguments.target_value_factor_row)[row] = rounded;
          }
        }
      }
    }
    __syncthreads();
    multiply_transposed();

    // E and its scales.
    uint32_t new_keys[2];
    {
      __half factor[kTiles][2];
      char* const key_factor = address[kTargetKeyFactor];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int r = t + 4 * tile;
        factor[tile][0] = saturate_to_half(thin[tile][0]);
        factor[tile][1] = saturate_to_half(thin[tile][1]);
        if (r < arguments.rank) {
          reinterpret_cast<uint32_t*>(key_factor + r * arguments.target_key_factor_row)[8 * warp + g] =
              pack_half(factor[tile][0], factor[tile][1]);
        }
      }
      key_factor_fragments<kColumns>(factor, t, new_keys);
    }
    float code_scale[4];  // of columns 4 t ... 4 t + 3, from lanes 8 t and 8 t + 4
#pragma unroll
    for (int i = 0; i < 4; ++i) code_scale[i] = __shfl_sync(kFullWarp, keys.code_scale[i & 1], 8 * t + 4 * (i >> 1));
    Residual residual;
    compute_residual(stage, smem, keys, code_scale, new_keys, warp, lane, residual);
    bool non_finite;
    const float key_scale = scale_columns(residual, lane, non_finite);
    if ((lane & 4) == 0) {
      reinterpret_cast<float*>(address[kTargetKeyScale])[16 * warp + 4 * t + own_column(lane)] = key_scale;
      if (non_finite) smem.non_finite = 1;
    }
    find_row_maxima(residual, smem, lane);
    __syncthreads();
    if (threadIdx.x < kDim) {
      const float value_scale = __uint_as_float(smem.row_largest[threadIdx.x]);
      reinterpret_cast<float*>(address[kTargetValueScale])[threadIdx.x] = value_scale;
      smem.code_scale[threadIdx.x] = 127.0f / value_scale;
    }
    if (threadIdx.x == 0 && smem.non_finite != 0 && arguments.selection.slot_index != nullptr) {
      atomicMin(arguments.selection.first_error_position + 1, static_cast<int>(program.position));
    }
    __syncthreads();
    quantize(residual, stage, smem, warp, lane);
    __syncthreads();
    store_codes(stage, address[kTargetCodes]);
    program = next;
  }
}

}  // namespace leapquant::cuda
