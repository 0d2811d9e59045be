// SPDX-License-Identifier: Apache-2.0
//
// Products of a group of four warps, D += A B with D [64, N] in registers, 16-bit A [64, 16] in shared memory or in
// registers and B [16, N] in shared memory. On sm_90a one asynchronous warpgroup instruction each; elsewhere the same
// product of the same bytes by every warp's own instructions. Both leave D alike: warp w holds rows 16 w ... 16 w + 15,
// and d[4 j ... 4 j + 3] are columns 8 j + 2 t, 8 j + 2 t + 1 of rows 16 w + g and 16 w + g + 8 (g = lane / 4, t = lane
// % 4).
#pragma once

#include "cuda/common/ptx.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LQ_WARPGROUP_INSTRUCTIONS 1
#else
#define LQ_WARPGROUP_INSTRUCTIONS 0
#endif

namespace leapquant::cuda {

// Rows of kRowBytes = 32, 64 or 128 bytes, whose 16-byte chunks are exchanged as the hardware does it: bits 4 and up of
// an address are those that it would have, XORed with bits 7 and up. Matrices begin at a multiple of 8 rows.
template <int kRowBytes>
__device__ __forceinline__ uint32_t swizzle(uint32_t address) {
  return address ^ (address >> 3 & (kRowBytes - 16));
}

// Which index runs along a row.
enum class Along { kInner, kOuter };

// A matrix tile: where its first element would lie without the exchange; when kAlong is kOuter and the tile is wider
// than a row, the distance to the tile's next 128 bytes. Both in units of 16 bytes.
template <int kRowBytes, Along kAlong>
struct Tile {
  uint32_t address;
  uint32_t next = 0;
};

#if LQ_WARPGROUP_INSTRUCTIONS

template <int kRowBytes, Along kAlong>
__device__ __forceinline__ uint64_t descriptor(const Tile<kRowBytes, kAlong>& tile) {
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  constexpr uint64_t kGroup = 8 * kRowBytes / 16;
  constexpr uint64_t kHigh = kSwizzle << 62 | kGroup << 32;
  return kHigh | (tile.address + (tile.next << 16));
}

#define LQ_D4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define LQ_D16(d, i) LQ_D4(d, i), LQ_D4(d, (i) + 4), LQ_D4(d, (i) + 8), LQ_D4(d, (i) + 12)

template <int kTransposeA>
__device__ __forceinline__ void warpgroup_product(float (&d)[8], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, p, 1, 1, %11, 1;\n}"
      : LQ_D4(d, 0), LQ_D4(d, 4)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA));
}
template <int kTransposeA>
__device__ __forceinline__ void warpgroup_product(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, %19, 1;\n}"
      : LQ_D16(d, 0)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA));
}
template <int kTransposeA>
__device__ __forceinline__ void warpgroup_product(float (&d)[64], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, %67, 1;\n}"
      : LQ_D16(d, 0), LQ_D16(d, 16), LQ_D16(d, 32), LQ_D16(d, 48)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposeA));
}

// A from registers: the fragments of each warp's 16 rows.
__device__ __forceinline__ void warpgroup_product(float (&d)[8], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, p, 1, 1, "
      "1;\n}"
      : LQ_D4(d, 0), LQ_D4(d, 4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
__device__ __forceinline__ void warpgroup_product(float (&d)[16], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 1;\n}"
      : LQ_D16(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}
#undef LQ_D16
#undef LQ_D4

#else

template <int kRowBytes, Along kAlong>
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const Tile<kRowBytes, kAlong>& tile, uint32_t warp,
                                          uint32_t lane) {
  if constexpr (kAlong == Along::kInner) {
    load_matrices(a, swizzle<kRowBytes>(16 * tile.address + (16 * warp + lane % 16) * kRowBytes + lane / 16 * 16));
  } else {
    const uint32_t row = lane % 8 + lane / 16 * 8;
    load_transposed(a, swizzle<kRowBytes>(16 * tile.address + row * kRowBytes + 32 * warp + (lane / 8 & 1) * 16));
  }
}

#endif

#if !LQ_WARPGROUP_INSTRUCTIONS

template <int kRegisters, int kRowsB>
__device__ __forceinline__ void multiply_by_warps(float (&d)[kRegisters], const uint32_t (&a)[4],
                                                  const Tile<kRowsB, Along::kOuter>& b, bool accumulate) {
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int pair = 0; pair < kRegisters / 8; ++pair) {
    constexpr int kPairsOfRow = kRowsB / 32;
    const uint32_t row = 16 * (b.address + pair / kPairsOfRow * b.next) + (lane % 16) * kRowsB;
    uint32_t right[4];
    load_transposed(right, swizzle<kRowsB>(row + pair % kPairsOfRow * 32 + lane / 16 * 16));
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      float* const c = d + 8 * pair + 4 * tile;
      if (!accumulate) c[0] = c[1] = c[2] = c[3] = 0.0f;
      multiply_bfloat(c, a[0], a[1], a[2], a[3], right[2 * tile], right[2 * tile + 1]);
    }
  }
}

#endif

// D += A B, or D = A B. B's rows are the inner index.
template <int kRegisters, int kRowsA, Along kAlongA, int kRowsB>
__device__ __forceinline__ void multiply(float (&d)[kRegisters], const Tile<kRowsA, kAlongA>& a,
                                         const Tile<kRowsB, Along::kOuter>& b, bool accumulate) {
#if LQ_WARPGROUP_INSTRUCTIONS
  warpgroup_product<kAlongA == Along::kOuter ? 1 : 0>(d, descriptor(a), descriptor(b), accumulate ? 1 : 0);
#else
  uint32_t left[4];
  load_left(left, a, threadIdx.x / 32, threadIdx.x % 32);
  multiply_by_warps(d, left, b, accumulate);
#endif
}

// The same with fragments of A, which must stay as they are until the product is finished.
template <int kRegisters, int kRowsB>
__device__ __forceinline__ void multiply(float (&d)[kRegisters], const uint32_t (&a)[4],
                                         const Tile<kRowsB, Along::kOuter>& b, bool accumulate) {
#if LQ_WARPGROUP_INSTRUCTIONS
  warpgroup_product(d, a, descriptor(b), accumulate ? 1 : 0);
#else
  multiply_by_warps(d, a, b, accumulate);
#endif
}

// Before the first product that reads what ordinary instructions wrote to registers.
__device__ __forceinline__ void begin_products() {
#if LQ_WARPGROUP_INSTRUCTIONS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Closes a batch of products.
__device__ __forceinline__ void commit_products() {
#if LQ_WARPGROUP_INSTRUCTIONS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}

// Waits until at most kPending of the last batches are unfinished.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
#if LQ_WARPGROUP_INSTRUCTIONS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
#endif
}

// The accumulators of finished products may be read from here on.
template <int kRegisters>
__device__ __forceinline__ void finish(float (&d)[kRegisters]) {
#if LQ_WARPGROUP_INSTRUCTIONS
#pragma unroll
  for (float& value : d) asm volatile("" : "+f"(value)::"memory");
#endif
}

// A barrier of the block after which products read what its threads wrote before.
__device__ __forceinline__ void publish_operands() {
#if LQ_WARPGROUP_INSTRUCTIONS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
  __syncthreads();
}

}  // namespace leapquant::cuda
