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

// ---- copies ---------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_async16(uint32_t smem, const void* gmem) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(smem), "l"(gmem) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

// ---- 8x8 matrices of 16-bit elements: lane l supplies the address of row l % 8 of matrix l / 8 ----------------------

__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&m)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&m)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t m) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(m));
  return result;
}

// ---- products: c += a b, fp32 accumulators --------------------------------------------------------------------------

// Fragments, g = lane / 4, t = lane % 4: c = rows g, g + 8 x columns 2t, 2t + 1; a = {(g, k), (g + 8, k), (g, k + 8),
// (g + 8, k + 8)} and b = {k, k + 8} with k = 2t, 2t + 1.
__device__ __forceinline__ void multiply_half(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                              uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_bfloat(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Inner dimension 8.
__device__ __forceinline__ void multiply_half(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b0));
}

// ---- conversions ----------------------------------------------------------------------------------------------------

// x = hi + lo up to 2^-22 (halves) or 2^-16 (bfloats) of x, side by side: hi in the low 16 bits.
__device__ __forceinline__ uint32_t split_half(float x) {
  const __half hi = __float2half_rn(x);
  const __half lo = __float2half_rn(x - __half2float(hi));
  return static_cast<uint32_t>(__half_as_ushort(hi)) | static_cast<uint32_t>(__half_as_ushort(lo)) << 16;
}
__device__ __forceinline__ uint32_t pack_bfloat(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
__device__ __forceinline__ float2 unpack_bfloat(uint32_t packed) {
  return make_float2(__uint_as_float(packed << 16), __uint_as_float(packed & 0xFFFF0000u));
}
__device__ __forceinline__ uint32_t split_bfloat(float x) {
  const float hi = __uint_as_float(pack_bfloat(x, 0.0f) << 16);
  return pack_bfloat(hi, x - hi);
}
// What split_bfloat leaves, below 2^-24 of x, beside a zero.
__device__ __forceinline__ uint32_t third_bfloat(float x) {
  const float2 terms = unpack_bfloat(split_bfloat(x));
  return pack_bfloat(x - terms.x - terms.y, 0.0f);
}
__device__ __forceinline__ float2 unpack_half(uint32_t packed) {
  return __half22float2(*reinterpret_cast<const __half2*>(&packed));
}
// Values beyond the range of fp16 saturate; NaN stays NaN.
__device__ __forceinline__ __half saturate_to_half(float x) {
  const float limit = 65504.0f;
  if (fabsf(x) > limit) x = copysignf(limit, x);
  return __float2half_rn(x);
}
__device__ __forceinline__ uint32_t pack_half(__half low, __half high) {
  return static_cast<uint32_t>(__half_as_ushort(low)) | static_cast<uint32_t>(__half_as_ushort(high)) << 16;
}

// Codes with their sign bits flipped (code + 128) as halves, exactly: 0x64xx is 1024 + xx. `kSelector` picks the two
// bytes.
constexpr uint32_t kFlipCodes = 0x80808080u;
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t codes_to_halves(uint32_t flipped) {
  const uint32_t biased = __byte_perm(flipped, 0x64646464u, kSelector);
  const uint32_t bias = 0x64806480u;  // 1152, 1152
  const __half2 codes = __hsub2(*reinterpret_cast<const __half2*>(&biased), *reinterpret_cast<const __half2*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&codes);
}
// ... and one of four as fp32: 0x4B0000xx is 2^23 + xx. The conversion instruction is slower.
template <uint32_t kByte>
__device__ __forceinline__ float code_to_float(uint32_t flipped) {
  return __uint_as_float(__byte_perm(flipped, 0x4B000000u, 0x7440u | kByte)) - 8388736.0f;
}

// x / 127, correctly rounded where neither result nor remainder is subnormal.
__device__ __forceinline__ float divide_by_127(float x) {
  const float reciprocal = 1.0f / 127.0f;
  const float quotient = x * reciprocal;
  return fmaf(fmaf(-127.0f, quotient, x), reciprocal, quotient);
}

// ---- powers of two --------------------------------------------------------------------------------------------------

// The exponent field of the power of two that brings x >= 0 into [2^shift, 2^(shift + 1)), as far as it has one.
__device__ __forceinline__ int scale_field(float x, int shift) {
  const int field = 254 - static_cast<int>(__float_as_uint(x) >> 23 & 255u) + shift;
  return min(max(field, 1), 253);
}
__device__ __forceinline__ float power_of_field(int field) { return __int_as_float(field << 23); }
__device__ __forceinline__ float inverse_of_field(int field) { return __int_as_float((254 - field) << 23); }

}  // namespace leapquant::cuda
