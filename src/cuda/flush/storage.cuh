// SPDX-License-Identifier: Apache-2.0
//
// Shared memory of one program in flight.
#pragma once

#include "cuda/common/group_product.cuh"
#include "cuda/common/thin_row.cuh"
#include "cuda/flush/config.h"

namespace leapquant::cuda {

// The key channels' places. What is multiplied lies by place where it is indexed by key: of 16 keys first the even
// ones, then the odd ones, place 16 m + 8 b + a holds key 16 m + 2 a + b. Then the rows g and g + 8 of a product with
// the transposed codes are the two keys that a transposing load leaves in one register, and the accumulators of E that
// a lane has of a row of 16 keys are four consecutive codes.
__device__ __forceinline__ uint32_t key_of_place(uint32_t place) {
  return (place & 0x70) | (place & 0x07) << 1 | (place >> 3 & 1);
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

// Blocks of the window's keys. With a decay by channel, w D k as hi, mid and lo: step 2 takes all three, and E the
// first two. With one by head the weights hold D: step 2 takes the keys as they are and scales what they meet, which is
// exact, and E takes w k as hi and mid, which come after.
inline constexpr int kKeyTerms = 3;
template <Decay kDecay>
inline constexpr int kIteratedTerms = kDecay == Decay::kByChannel ? 3 : 1;
template <Decay kDecay>
inline constexpr int kFirstResidualTerm = kDecay == Decay::kByChannel ? 0 : 1;

// Sizes that depend on the number of thin columns.
template <int kColumns>
struct Layout {
  static constexpr int kTiles = kColumns / 4;  // groups of four factors
  // Rows of the rank-20 part. Key side: blocks of window entries, then old factors of each group as hi, mid, lo, hi.
  // Value side: window entries, then old factors as hi, hi, hi, lo: their product lacks mid x lo and below.
  static constexpr int kKeyBlocks = kKeyTerms + kTiles;
  static constexpr int kValueBlocks = 1 + kTiles;
  static constexpr int kInnerRows = kValueBlocks * 16;
  static constexpr int kKeyHalfBytes = kKeyBlocks * 16 * kDim;
  static constexpr int kValueHalfBytes = kValueBlocks * 16 * kDim;
  static constexpr int kBlockBytes = 16 * kDim;  // 16 rows of 64 channels
};

// Bytes from one row of digits to the next: eight rows begin in different banks.
inline constexpr int kDigitPitch = kDim + 16;

// How far the columns of a thin matrix are from depending on one another.
enum class Conditioning {
  kUnclear,      // they may depend on one another
  kIndependent,  // L is good enough to make columns for another product
  kGood,         // ... and to be applied to the result of a product
  kOrthogonal    // ... and makes columns orthonormal at once
};

// A thin matrix as bfloats, by group of four columns: rows of hi and mid of each, and of lo and a zero of each.
template <int kColumns>
struct ThinTerms {
  static constexpr int kTiles = Layout<kColumns>::kTiles;
  uint16_t hi_mid[kTiles][kDim][8];  // [group][warp, its rows]
  uint16_t lo[kTiles][kDim][8];
};

// What the flush's products with the state need of a thin matrix x.
template <int kColumns>
struct ThinOperands {
  static constexpr int kTiles = Layout<kColumns>::kTiles;
  ThinTerms<kColumns> terms;
  uint8_t digits[16 * kTiles][kDigitPitch];  // of scaled x: [digit][inner index]
  // A^T x or B x: [group][row of the rank-20 part]; lo and a zero beside them.
  uint16_t inner[2][kTiles][Layout<kColumns>::kInnerRows][8];
};

// c of eight places under a power of two, as two diagonal matrices of halves, hi and mid: the words that a right
// operand has of each place, and those of everything beside the diagonal, which stay zero.
struct DiagonalTile {
  static constexpr int kBeside = 8;
  uint2 words[kBeside + 1];
};

// New factors for the last product: inner index the factor, 8 halves a row, zeros beyond the columns.
struct NewFactors {
  uint16_t value[kDim][8];  // -q', by value channel
  uint16_t key[kDim][8];    // u', by place
};

// Where copies in flight lie and what they become. A copy of the next program begins once E is in registers.
//
// staged      window keys and gates, until key_side is made
// value_side  window updates at once in their place
// codes       until step 1 has loaded them as fragments; then, of the same warp, column sums of abs E
template <int kColumns>
struct alignas(1024) SharedStorage {
  using L = Layout<kColumns>;
  uint16_t key_side[2][L::kKeyBlocks * 16][64];      // [half of the places][row][64]; then codes on their way out
  uint16_t value_side[2][L::kValueBlocks * 16][64];  // [half of V][row][64]
  uint8_t codes[kDim][kDim];                         // as stored, but for the order of a row's chunks: code_offset()
  union {
    uint16_t staged[2][kEntries][kDim];
    ThinOperands<kColumns> operand;
    NewFactors factors;
  };
  // A^T x or B x over a warp's channels: [entry or factor][column].
  float partial[kWarps][kEntries + kColumns][kColumns];
  union {
    uint32_t word[kWarps][kColumns][32];  // scaled x as integers: [column][inner index]
    float thin[kDim][kColumns];           // results on their way from accumulators to rows
    float column_part[kWarps][kDim];      // column sums of abs E, by warp: after the last thin result
  };
  float start[kDim][kColumns];  // q0, scaled
  ThinTerms<kColumns> start_terms;
  uint16_t key_factor[kColumns][kDim];  // as stored; rows beyond the rank stay zero
  uint16_t value_factor[kColumns][kDim];
  float key_scale[kDim];
  float value_scale[kDim];
  float decay[kDim];  // its logarithm, or of the whole head in the first element
  float window_weight[kEntries];
  union {
    float code_scale[kDim];   // c: until E is in registers
    float key_inverse[kDim];  // 1 / s_k': after
  };
  DiagonalTile diagonal[kDim / 8];          // by place
  alignas(16) float largest_scale[kWarps];  // of abs c, by warp
  alignas(16) float largest[kWarps];        // of abs scaled x, by warp
  // Of x, by warp; two, as the next one begins while warps still read the last one.
  float gram[2][kWarps][kColumns][kColumns];
  alignas(16) float gram_sum[kWarps][kColumns][kColumns];  // every warp's copy
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

// Codes as the left operand of byte products: of a warp's 16 rows of 64, and of all of them: [64-row tile][32 inner
// indices]. The inner indices of number s are channels 16 s ... 16 s + 15 and the 16 that are 64 after them, which are
// the rows of warp s.
using CodeFragment = uint32_t[4];
using CodeFragments = CodeFragment[2][4];

// Byte offset of 16 codes.
__device__ __forceinline__ uint32_t code_offset(uint32_t row, uint32_t chunk) {
  return row * kDim + ((chunk ^ (row & 7)) << 4);
}

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
  // Of a matrix in two halves of 64 columns: the 16 rows of `block`, from a half on.
  template <int kRows>
  __device__ __forceinline__ Tile columns(const uint16_t (&matrix)[2][kRows][64], int half, int block) const {
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
