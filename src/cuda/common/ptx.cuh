// SPDX-License-Identifier: Apache-2.0
//
// One wrapper per PTX instruction, and the bit-level conversions of the kernels. Everything here runs from sm_80 on.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace leapquant::cuda {

constexpr unsigned kFullWarp = 0xFFFFFFFFu;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- kernels in a row -----------------------------------------------------------------------------------------------

// Returns when what comes before this kernel in its stream has ended, of which it may have been launched ahead: see
// launch_ahead().
__device__ __forceinline__ void wait_for_earlier_kernels() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// ---- copies ---------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_async16(uint32_t smem, const void* gmem) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem), "l"(gmem) : "memory");
}
__device__ __forceinline__ void copy_async4(uint32_t smem, const void* gmem) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(smem), "l"(gmem) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Groups of copies: the end of one, and a wait for all but the last `kGroups`.
__device__ __forceinline__ void end_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kGroups>
__device__ __forceinline__ void wait_for_copy_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}
// What nobody writes meanwhile. Stays where it is among the copies.
__device__ __forceinline__ uint4 load_constant16(const void* gmem) {
  uint4 value;
  asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(gmem));
  return value;
}

// Bytes that are needed once.
__device__ __forceinline__ uint4 load_global16(const void* gmem) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(gmem)
               : "memory");
  return value;
}

// ---- shared memory by address ---------------------------------------------------------------------------------------

__device__ __forceinline__ void store_shared(uint32_t smem, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared(uint32_t smem, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w)
               : "memory");
}
__device__ __forceinline__ uint2 load_shared8(uint32_t smem) {
  uint2 value;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(smem) : "memory");
  return value;
}
__device__ __forceinline__ float2 load_shared_pair(uint32_t smem) {
  const uint2 pair = load_shared8(smem);
  return make_float2(__uint_as_float(pair.x), __uint_as_float(pair.y));
}
__device__ __forceinline__ uint4 load_shared16(uint32_t smem) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(smem)
               : "memory");
  return value;
}

// ---- 8x8 matrices of 16-bit elements: lane l supplies the address of row l % 8 of matrix l / 8 ----------------------

__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// Stores the matrices whose fragments load_matrices() gives.
__device__ __forceinline__ void store_matrices(const uint32_t (&m)[4], uint32_t address) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(m[0]), "r"(m[1]),
               "r"(m[2]), "r"(m[3])
               : "memory");
#else
  const uint32_t lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) store_shared(__shfl_sync(kFullWarp, address, 8 * i + lane / 4) + lane % 4 * 4, m[i]);
#endif
}

// ---- products of one warp: c += a b, fp32 accumulators --------------------------------------------------------------

// Fragments, g = lane / 4, t = lane % 4: c = rows g, g + 8 x columns 2t, 2t + 1; a = {(g, k), (g + 8, k), (g, k + 8),
// (g + 8, k + 8)} and b = {k, k + 8} with k = 2t, 2t + 1.
__device__ __forceinline__ void multiply_bfloat(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Inner dimension 8.
__device__ __forceinline__ void multiply_half(float* c, uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

// Inner dimension 16, c = a b.
__device__ __forceinline__ void multiply_half_first(float* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
}

// c += a b of bytes, exactly, a signed and b signed or not: inner dimension 32. Fragments are those above with four
// bytes in place of two halves: a = {(g, k), (g + 8, k), (g, k + 16), (g + 8, k + 16)} and b = {k, k + 16} with k = 4t
// ... 4t + 3.
__device__ __forceinline__ void multiply_bytes(int32_t* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                               uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_unsigned_bytes(int32_t* c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                        uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ---- conversions ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t pack_bfloat(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ float2 unpack_bfloat(uint32_t packed) {
  return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000u));
}

// Two values as three bfloats each, 24 bits in all: x = hi + mid + lo.
struct BfloatPair {
  uint32_t hi;
  uint32_t mid;
  uint32_t lo;
};
__device__ __forceinline__ BfloatPair split_pair(float x, float y) {
  BfloatPair pair;
  pair.hi = pack_bfloat(x, y);
  const float2 hi = unpack_bfloat(pair.hi);
  const float2 rest = make_float2(x - hi.x, y - hi.y);
  pair.mid = pack_bfloat(rest.x, rest.y);
  const float2 mid = unpack_bfloat(pair.mid);
  pair.lo = pack_bfloat(rest.x - mid.x, rest.y - mid.y);
  return pair;
}
// One value as three: hi beside mid, lo beside a zero.
struct BfloatTerms {
  uint32_t hi_mid;
  uint32_t lo;
};
__device__ __forceinline__ BfloatTerms split_value(float x) {
  const float hi = __uint_as_float(pack_bfloat(x, 0.0f) << 16);
  const float rest = x - hi;
  BfloatTerms terms;
  terms.hi_mid = pack_bfloat(hi, rest);
  terms.lo = pack_bfloat(rest - unpack_bfloat(terms.hi_mid).y, 0.0f);
  return terms;
}

__device__ __forceinline__ float2 unpack_half(uint32_t packed) {
  return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}
// Values beyond the range of fp16 saturate; NaN stays NaN.
__device__ __forceinline__ uint32_t saturate_to_halves(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ uint16_t saturate_to_half(float x) {
  return static_cast<uint16_t>(saturate_to_halves(x, 0.0f));
}

// Two codes as bfloats, exactly: `kSelector` picks their bytes from `codes`. `exponents` is 0x43 four times:
// 0x43cc is 128 + (cc & 127) without bit 7, and bit 7, the sign, makes 256 of the 128 that is to be subtracted.
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t codes_to_bfloats(uint32_t codes, uint32_t exponents) {
  const uint32_t biased = __byte_perm(codes, exponents, kSelector);
  const uint32_t value = biased & 0xFF7FFF7Fu;
  const uint32_t bias = biased & 0xFF80FF80u;
  const __nv_bfloat162 code =
      __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&value), *reinterpret_cast<const __nv_bfloat162*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&code);
}
// Two of four codes as halves, exactly: `kSelector` puts their bytes below one of `exponents`, which is 0x64 four
// times. Codes come with their sign bit inverted, as code + 128: 0x64cc is 1024 + cc.
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t codes_to_halves(uint32_t codes_plus_128, uint32_t exponents) {
  const uint32_t biased = __byte_perm(codes_plus_128, exponents, kSelector);
  const uint32_t bias = 0x64806480u;  // 1024 + 128
  const __half2 code = __hsub2(*reinterpret_cast<const __half2*>(&biased), *reinterpret_cast<const __half2*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&code);
}
#if __CUDA_ARCH__ >= 900
// Two values, rounded half to even and saturated to bytes, before the low half of `after`: one instruction from sm_90
// on.
__device__ __forceinline__ uint32_t pack_rounded(float low, float high, uint32_t after) {
  uint32_t packed;
  asm("{\n\t.reg .s32 low, high;\n\t"
      "cvt.rni.s32.f32 low, %1;\n\tcvt.rni.s32.f32 high, %2;\n\t"
      "cvt.pack.sat.s8.s32.b32 %0, high, low, %3;\n\t}"
      : "=r"(packed)
      : "f"(low), "f"(high), "r"(after));
  return packed;
}
#endif
// x / 127, correctly rounded where neither result nor remainder is subnormal.
__device__ __forceinline__ float divide_by_127(float x) {
  const float reciprocal = 1.0f / 127.0f;
  const float quotient = x * reciprocal;
  return fmaf(fmaf(-127.0f, quotient, x), reciprocal, quotient);
}

// ---- quotients and roots of normal numbers, a rounding at most from the exact ones, without a subroutine ------------

__device__ __forceinline__ float divide(float x, float y) {
  float reciprocal;
  asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocal) : "f"(y));
  const float quotient = x * reciprocal;
  return fmaf(fmaf(-y, quotient, x), reciprocal, quotient);
}
__device__ __forceinline__ float inverse_square_root(float x) {
  float root;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
  return root;
}
__device__ __forceinline__ float square_root(float x) {
  const float inverse = rsqrtf(x);
  const float root = x * inverse;
  return fmaf(0.5f * fmaf(-root, root, x), inverse, root);
}

// ---- sums over a warp -----------------------------------------------------------------------------------------------

// Sums of kCount values over groups of kLanes lanes, both powers of two: of its group, lane l gets that of value l /
// (kLanes / kCount). Value by value the same tree, in all lanes that get it.
template <int kLanes, int kCount>
__device__ __forceinline__ float reduce_values(float (&value)[kCount], uint32_t lane) {
  int lanes = kLanes / 2;
#pragma unroll
  for (int half = kCount / 2; half > 0; half /= 2, lanes /= 2) {
    const bool upper = (lane & lanes) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float kept = upper ? value[half + i] : value[i];
      const float sent = upper ? value[i] : value[half + i];
      value[i] = kept + __shfl_xor_sync(kFullWarp, sent, lanes);
    }
  }
#pragma unroll
  for (; lanes > 0; lanes /= 2) value[0] += __shfl_xor_sync(kFullWarp, value[0], lanes);
  return value[0];
}

// ---- powers of two --------------------------------------------------------------------------------------------------

// The power of two that brings x >= 0 into [1, 2), as far as there is one.
__device__ __forceinline__ float power_to_one(float x) {
  const int field = 254 - static_cast<int>(__float_as_uint(x) >> 23 & 255u);
  return __int_as_float(min(max(field, 1), 253) << 23);
}
// The inverse of one of these.
__device__ __forceinline__ float power_inverse(float power) {
  return __int_as_float((254 << 23) - __float_as_int(power));
}

}  // namespace leapquant::cuda
