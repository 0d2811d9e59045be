// SPDX-License-Identifier: Apache-2.0
//
// Products of a group of four warps, D += A^T B with D [64, 128] in registers and bfloats A [16, 64] and B [16, 128] in
// shared memory. On sm_90a one asynchronous warpgroup instruction each; elsewhere the same product of the same bytes by
// every warp's own instructions. Both leave D alike: warp w holds rows 16 w ... 16 w + 15, and d[4 j ... 4 j + 3] are
// columns 8 j + 2 t, 8 j + 2 t + 1 of rows 16 w + g and 16 w + g + 8 (g = lane / 4, t = lane % 4).
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

// 16 rows of 64 or more bfloats, the rows in pieces of 128 bytes: where the first element would lie without the
// exchange, and the distance from one piece of a row to the next. Both in units of 16 bytes.
struct Tile {
  uint32_t address;
  uint32_t next;
};

#if LQ_WARPGROUP_INSTRUCTIONS

__device__ __forceinline__ uint64_t descriptor(const Tile& tile) {
  constexpr uint64_t kSwizzle = 1;  // of 128 bytes
  constexpr uint64_t kGroup = 8 * 128 / 16;
  constexpr uint64_t kHigh = kSwizzle << 62 | kGroup << 32;
  return kHigh | (tile.address + (tile.next << 16));
}

#define LQ_D4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define LQ_D16(d, i) LQ_D4(d, i), LQ_D4(d, (i) + 4), LQ_D4(d, (i) + 8), LQ_D4(d, (i) + 12)

__device__ __forceinline__ void multiply(float (&d)[64], const Tile& a, const Tile& b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
      "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,"
      "%58,%59,%60,%61,%62,%63}, %64, %65, 1, 1, 1, 1, 1;"
      : LQ_D16(d, 0), LQ_D16(d, 16), LQ_D16(d, 32), LQ_D16(d, 48)
      : "l"(descriptor(a)), "l"(descriptor(b)));
}

#undef LQ_D16
#undef LQ_D4

#else

__device__ __forceinline__ void multiply(float (&d)[64], const Tile& a, const Tile& b) {
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  uint32_t left[4];
  load_transposed(left,
                  swizzle<128>(16 * a.address + (lane % 8 + lane / 16 * 8) * 128 + 32 * warp + (lane / 8 & 1) * 16));
#pragma unroll
  for (int pair = 0; pair < 8; ++pair) {
    const uint32_t row = 16 * (b.address + pair / 4 * b.next) + lane % 16 * 128;
    uint32_t right[4];
    load_transposed(right, swizzle<128>(row + pair % 4 * 32 + lane / 16 * 16));
#pragma unroll
    for (int tile = 0; tile < 2; ++tile) {
      float* const c = d + 8 * pair + 4 * tile;
      multiply_bfloat(c, left[0], left[1], left[2], left[3], right[2 * tile], right[2 * tile + 1]);
    }
  }
}

#endif

// Before the first product that reads what ordinary instructions wrote to registers.
__device__ __forceinline__ void begin_products() {
#if LQ_WARPGROUP_INSTRUCTIONS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}

// Ends the products; their accumulators may be read after finish().
__device__ __forceinline__ void wait_for_products() {
#if LQ_WARPGROUP_INSTRUCTIONS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
}

// The accumulators of products that have ended may be read from here on.
__device__ __forceinline__ void finish(float (&d)[64]) {
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
