// SPDX-License-Identifier: Apache-2.0
//
// Shared memory of one program in flight.
#pragma once

#include "cuda/common/group_product.cuh"
#include "cuda/flush/config.h"

namespace leapquant::cuda {

// The key channels' places. Everything in shared memory that is indexed by key lies in this order, so that a lane's
// accumulators of E are 16 consecutive codes: place 64 h + 8 s + 2 a + i holds key 64 h + 16 a + 2 s + i.
__device__ __forceinline__ uint32_t key_of_place(uint32_t place) {
  return (place & 0x41) | (place & 0x06) << 3 | (place & 0x38) >> 2;
}

// Where a column's number lies of which an accumulator's lane wants four at once: columns 8 j + 2 t + i of tiles j = 2
// n and 2 n + 1 side by side for each t.
__device__ __forceinline__ uint32_t place_by_tile_pairs(uint32_t place) {
  return (place & 0x71) | (place & 0x06) << 1 | (place & 0x08) >> 2;
}

// The programs of one block: those whose rank among the due programs is the block's number modulo the grid. Every block
// scans all counters in the same order.
struct DueList {
  uint32_t scanned;  // units scanned so far
  uint32_t phase;    // rank, counted from `scanned` on, of this block's next program
  uint32_t start;    // how many programs the block took from earlier lists
  uint32_t end;      // ... and will have taken from this one
  uint32_t warp_total[kWarps];
  int32_t slot[kListLength];
  int32_t position[kListLength];
  uint16_t head[kListLength];
};

// The row of a window entry among the 16 of its block: entries j and j + 8, which two halves of a warp handle at once,
// are four rows apart, where the exchange of chunks puts them into different banks.
__device__ __forceinline__ uint32_t row_of_entry(uint32_t entry) {
  return (entry & 3) | (entry & 4) << 1 | (entry & 8) >> 1;
}

// Sizes that depend on the number of thin columns.
template <int kColumns>
struct Layout {
  static constexpr int kTiles = kColumns / 4;  // groups of four factors
  // A thin operand has 16 bfloats a row and group: hi and mid of its four factors, then lo and a zero.
  static constexpr int kThinRowBytes = 32 * kTiles;
  // Rows of the rank-20 part. Key side: window entries as hi and mid, then old factors of each group as hi, mid, lo,
  // hi. Value side: window entries, then old factors as hi, hi, hi, lo: their product lacks mid x lo and below.
  static constexpr int kKeyBlocks = 2 + kTiles;
  static constexpr int kValueBlocks = 1 + kTiles;
  static constexpr int kKeyHalfBytes = kKeyBlocks * 16 * kDim;
  static constexpr int kValueHalfBytes = kValueBlocks * 16 * kDim;
  static constexpr int kBlockBytes = 16 * kDim;  // 16 rows of 64 channels
};

// Where copies in flight lie and what they become. A copy of the next program begins once E is in registers.
//
// operand[0]  window keys, until key_side is made; then s_v x or c x
// operand[1]  window gates, until key_side is made; then x; then new_value, new_key for E
// value_side  window updates at once in their place
template <int kColumns>
struct alignas(1024) SharedStorage {
  using L = Layout<kColumns>;
  uint16_t codes[2][kDim][64];                         // [half of the places][V][64], rows of 128 bytes
  uint16_t key_side[2][L::kKeyBlocks * 16][64];        // [half of the places][row][64]
  uint16_t value_side[2][L::kValueBlocks * 16][64];    // [half of V][row][64]
  uint16_t operand[2][kDim][16 * L::kTiles];           // [channel][term]
  uint16_t inner[L::kKeyBlocks * 16][16 * L::kTiles];  // A^T x or B x: [row of the rank-20 part][term]
  union {
    float thin[kDim][kColumns];       // results on their way from accumulators to rows
    float column_part[kWarps][kDim];  // column sums of abs E, by warp: after the last thin result
  };
  float start[kDim][kColumns];          // q0, scaled
  uint16_t key_factor[kColumns][kDim];  // as stored; rows beyond the rank stay zero
  uint16_t value_factor[kColumns][kDim];
  float key_scale[kDim];
  float value_scale[kDim];
  float decay[kDim];  // its logarithm, or of the whole head in the first element
  float window_weight[kEntries];
  float code_scale[kDim];  // c, by place
  union {
    uint32_t code_scale_terms[kDim];  // hi and mid, whose sum is c, by place: until E is in registers
    float key_inverse[kDim];          // 1 / s_k', by tile pairs: after
  };
  alignas(16) float gram[kColumns * (kColumns + 1) / 2][kWarps];
  int non_finite;
  DueList due;
  ProgramBytes tensor[kTensorCount];  // of the arguments: constant memory is slow where lanes differ
  // Of this program and the next one.
  char* address[2][kTensorCount];
  int32_t position[2];  // in the batch; -1: none
};

// The block's shared memory: one SharedStorage.
extern __shared__ __align__(1024) char shared_bytes[];

// threadIdx.x, of which the compiler computes nothing ahead: addresses that it would keep across the programs of a
// block cost registers that the accumulators need.
__device__ __forceinline__ uint32_t thread_index() {
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// The warp and lane of a thread. In accumulators of two 64-row tiles its rows are accumulator_row(0 ... 3); of thin
// matrices a row is its own, one of the rows that the warp's accumulators hold.
struct Place {
  uint32_t thread;
  uint32_t warp;
  uint32_t lane;
  uint32_t g;
  uint32_t t;
  uint32_t own;

  __device__ __forceinline__ Place()
      : thread(thread_index()),
        warp(__shfl_sync(kFullWarp, thread / 32, 0)),
        lane(thread % 32),
        g(lane / 4),
        t(lane % 4),
        own(lane / 16 * 64 + 16 * warp + lane % 16) {}
  __device__ __forceinline__ uint32_t accumulator_row(uint32_t number) const {
    return 64 * (number / 2) + 16 * warp + 8 * (number % 2) + g;
  }
};

// One row of a thin matrix.
template <int kColumns>
using ThinRow = float[kColumns];

template <int kColumns>
__device__ __forceinline__ void load_row(const ThinRow<kColumns>& source, ThinRow<kColumns>& row) {
#pragma unroll
  for (int r = 0; r < kColumns; r += 4) {
    const float4 part = *reinterpret_cast<const float4*>(source + r);
    row[r] = part.x;
    row[r + 1] = part.y;
    row[r + 2] = part.z;
    row[r + 3] = part.w;
  }
}

// The codes as bfloats, as the left operand of products with keys as the inner index: [64-row tile][16 places].
using CodeFragments = uint32_t[2][8][4];

// ---- the tiles of the products --------------------------------------------------------------------------------------

// Makes the tiles of the storage's matrices.
template <int kColumns>
class Tiles {
 public:
  // The descriptors of tiles belong into uniform registers, which is where the compiler makes them only of an address
  // that it knows: hence the symbol by name.
  __device__ __forceinline__ explicit Tiles(const SharedStorage<kColumns>& smem) : smem_(smem) {
    uint32_t address;
    asm volatile("mov.u32 %0, _ZN9leapquant4cuda12shared_bytesE;" : "=r"(address));
    base_ = address / 16;
  }
  // 16 rows of a thin operand.
  __device__ __forceinline__ Tile<Layout<kColumns>::kThinRowBytes, Along::kOuter> thin(const void* operand,
                                                                                       int block) const {
    return {address(operand) + block * Layout<kColumns>::kThinRowBytes};
  }
  // Of a matrix in two halves of 64 columns: 64 rows from `row` on x the 16 columns of `step`, inner index the column.
  template <int kRows>
  __device__ __forceinline__ Tile<128, Along::kInner> rows(const uint16_t (&matrix)[2][kRows][64], int row,
                                                           int step) const {
    return {address(matrix) + (step / 4 * kRows + row) * 8 + step % 4 * 2};
  }
  // ... 64 columns of a half (and those of the other) x the 16 rows of `block`, inner index the row.
  template <int kRows>
  __device__ __forceinline__ Tile<128, Along::kOuter> columns(const uint16_t (&matrix)[2][kRows][64], int half,
                                                              int block) const {
    return {address(matrix) + (half * kRows + block * 16) * 8, kRows * 8};
  }

 private:
  // In units of 16 bytes.
  __device__ __forceinline__ uint32_t address(const void* matrix) const {
    const auto offset = static_cast<const char*>(matrix) - reinterpret_cast<const char*>(&smem_);
    return base_ + static_cast<uint32_t>(offset) / 16;
  }

  const SharedStorage<kColumns>& smem_;
  uint32_t base_;
};

}  // namespace leapquant::cuda
