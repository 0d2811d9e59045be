// SPDX-License-Identifier: Apache-2.0
//
// Which programs a block flushes.
#pragma once

#include "cuda/flush/storage.cuh"

namespace leapquant::cuda {

struct Program {
  int32_t position;  // in the batch; -1: none
  int32_t item;
  int32_t head;
};

__device__ __forceinline__ char* at(const ProgramBytes& tensor, const Program& program) {
  return tensor.base + program.item * tensor.item_stride + program.head * tensor.head_stride;
}

// A thread's units of one pass, kThreads apart: where unit number `round` is. 32 bits hold a batch.
struct UnitCursor {
  uint32_t position;
  uint32_t unit;  // of the position
};

// kWhole: a step of kThreads units is a whole number of positions.
template <bool kWhole>
struct UnitStep {
  uint32_t positions;
  uint32_t units;
  uint32_t units_of_position;

  __device__ __forceinline__ explicit UnitStep(uint32_t units_of_position)
      : positions(kThreads / units_of_position),
        units(kWhole ? 0 : kThreads - positions * units_of_position),
        units_of_position(units_of_position) {}
  __device__ __forceinline__ void apply(UnitCursor& cursor) const {
    cursor.position += positions;
    if constexpr (!kWhole) {
      cursor.unit += units;
      if (cursor.unit >= units_of_position) {
        cursor.unit -= units_of_position;
        ++cursor.position;
      }
    }
  }
};

// The counters of a unit.
template <int kUnit>
struct UnitCounters {
  int32_t count[kUnit];

  __device__ __forceinline__ void load(const ProgramBytes& counters, uint32_t units_of_position, int32_t slot,
                                       uint32_t unit) {
    if constexpr (kUnit == 1) {
      count[0] = __ldg(
          reinterpret_cast<const int32_t*>(counters.base + slot * counters.item_stride + unit * counters.head_stride));
    } else {
      const auto* const fours = reinterpret_cast<const int4*>(counters.base) +
                                (static_cast<uint64_t>(slot) * units_of_position + unit) * (kUnit / 4);
#pragma unroll
      for (int i = 0; i < kUnit / 4; ++i) {
        const int4 four = __ldg(fours + i);
        count[4 * i] = four.x;
        count[4 * i + 1] = four.y;
        count[4 * i + 2] = four.z;
        count[4 * i + 3] = four.w;
      }
    }
  }
  __device__ __forceinline__ uint32_t due() const {
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < kUnit; ++i) bits |= count[i] == kEntries ? 1u << i : 0u;
    return bits;
  }
};

// The due programs of a thread's units, by round.
template <int kUnit>
struct DueMask {
  static constexpr int kRoundsOfWord = 32 / kUnit;
  static constexpr int kWords = (kScanRounds + kRoundsOfWord - 1) / kRoundsOfWord;
  uint32_t word[kWords] = {};

  __device__ __forceinline__ void add(int round, uint32_t bits) {
    word[round / kRoundsOfWord] |= bits << kUnit * (round % kRoundsOfWord);
  }
  __device__ __forceinline__ uint32_t total() const {
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) sum += __popc(word[i]);
    return sum;
  }
  // The number (round * kUnit + head) of the program of the given rank among them.
  __device__ __forceinline__ uint32_t select(uint32_t rank) const {
    uint32_t bits = 0;
    uint32_t base = 0;
    uint32_t left = rank;  // in words not seen yet; wraps once the word is found
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const auto here = static_cast<uint32_t>(__popc(word[i]));
      if (left < here && bits == 0) {
        bits = word[i];
        base = 32 * i;
        rank = left;
      }
      left -= here;
    }
    for (; rank > 0; --rank) bits &= bits - 1;
    return base + __ffs(static_cast<int>(bits)) - 1;
  }
};

// Records the first of a thread's units whose index is beyond the pool.
__device__ __noinline__ void report_beyond(const Selection& selection, uint32_t units_of_position, uint32_t first,
                                           uint32_t units) {
  for (uint32_t unit = first; unit < units; unit += kThreads) {
    const uint32_t position = unit / units_of_position;
    if (selection.slot_index[position] < selection.num_slots) continue;
    atomicMin(selection.first_error_position + 0, static_cast<int>(position));
    return;
  }
}

// One pass over kScanUnits units of counters into the list. Ranks go by thread, then by round. Ends with a barrier.
template <int kUnit, bool kWhole>
__device__ __noinline__ void scan(const Selection& selection, DueList& due) {
  const auto units_of_position = static_cast<uint32_t>(selection.heads / kUnit);
  const uint32_t first = due.scanned + threadIdx.x;
  const auto units = static_cast<uint32_t>(selection.programs / kUnit);
  const uint32_t phase = due.phase;
  const uint32_t first_position = first / units_of_position;
  const UnitCursor own{first_position, first - first_position * units_of_position};
  const UnitStep<kWhole> step(units_of_position);
  const int32_t* const slot_index = selection.slot_index;
  const ProgramBytes counters = selection.fill_count;
  const auto num_slots = static_cast<int32_t>(min(selection.num_slots, int64_t{0x7FFFFFFF}));
  // All indices first, then all counters: two latencies for the pass.
  int32_t slot[kScanRounds];
  UnitCursor cursor = own;
#pragma unroll
  for (int round = 0; round < kScanRounds; ++round) {
    slot[round] = first + round * kThreads < units ? __ldg(slot_index + cursor.position) : 0;
    step.apply(cursor);
  }
  DueMask<kUnit> mask;
  int32_t largest = 0;
  cursor = own;
#pragma unroll
  for (int round = 0; round < kScanRounds; ++round) {
    largest = max(largest, slot[round]);
    UnitCounters<kUnit> counts{};
    if (slot[round] > 0 && slot[round] < num_slots) counts.load(counters, units_of_position, slot[round], cursor.unit);
    mask.add(round, counts.due());
    step.apply(cursor);
  }
  if (largest >= num_slots && blockIdx.x == 0) {
    report_beyond(selection, units_of_position, first, min(units, due.scanned + kScanUnits));
  }
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t own_total = mask.total();
  uint32_t before = own_total;
#pragma unroll
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint32_t other = __shfl_up_sync(kFullWarp, before, distance);
    if (lane >= distance) before += other;
  }
  if (lane == 31) due.warp_total[threadIdx.x / 32] = before;
  __syncthreads();
  before -= own_total;
  uint32_t total = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    if (warp < threadIdx.x / 32) before += due.warp_total[warp];
    total += due.warp_total[warp];
  }
  // This thread's ranks are before, before + 1, ...; those congruent to the phase are the block's.
  const uint32_t grid = gridDim.x;
  uint32_t place = before > phase ? (before - phase + grid - 1) / grid : 0;
  for (uint32_t rank = phase + place * grid; rank < before + own_total; rank += grid, ++place) {
    const uint32_t bit = mask.select(rank - before);
    const uint32_t unit = first + bit / kUnit * kThreads;
    const uint32_t position = unit / units_of_position;
    due.slot[place] = slot_index[position];
    due.position[place] = static_cast<int32_t>(position);
    due.head[place] = static_cast<uint16_t>((unit - position * units_of_position) * kUnit + bit % kUnit);
  }
  if (threadIdx.x == 0) {
    due.phase = (phase + grid - total % grid) % grid;
    due.scanned += kScanUnits;
    due.start = due.end;
    due.end += total > phase ? (total - phase + grid - 1) / grid : 0;
  }
  __syncthreads();
}

template <int kUnit>
__device__ __forceinline__ void scan_units(const Selection& selection, DueList& due) {
  const bool whole = kThreads % (selection.heads / kUnit) == 0;
  return whole ? scan<kUnit, true>(selection, due) : scan<kUnit, false>(selection, due);
}

__device__ __forceinline__ void scan_pass(const Selection& selection, DueList& due) {
  if (selection.unit == 8) return scan_units<8>(selection, due);
  return selection.unit == 4 ? scan_units<4>(selection, due) : scan<1, false>(selection, due);
}

// Scans on until the list reaches the block's program number `number`, in turn, or there are no more. Uniform over the
// block.
__device__ __forceinline__ void extend_list(const Selection& selection, DueList& due, uint32_t number) {
  if (selection.slot_index == nullptr) return;
  while (number == due.end && int64_t{due.scanned} * selection.unit < selection.programs) {
    __syncthreads();  // the list has been read
    scan_pass(selection, due);
  }
}

// The block's program number `number`, in turn: the list has been extended to it.
__device__ __forceinline__ Program program_at(const Selection& selection, const DueList& due, uint32_t number) {
  if (selection.slot_index == nullptr) {
    const int64_t n = blockIdx.x + int64_t{number} * gridDim.x;
    if (n >= selection.programs) return {-1, 0, 0};
    const auto position = static_cast<int32_t>(n / selection.heads);
    return {position, position, static_cast<int32_t>(n - int64_t{position} * selection.heads)};
  }
  if (number == due.end) return {-1, 0, 0};
  const uint32_t place = number - due.start;
  return {due.position[place], due.slot[place], due.head[place]};
}

}  // namespace leapquant::cuda
