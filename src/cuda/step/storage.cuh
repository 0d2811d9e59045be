// SPDX-License-Identifier: Apache-2.0
//
// Shared memory of a program's step, and which part of it a thread has.
#pragma once

#include "cuda/common/ptx.cuh"
#include "cuda/step/config.h"

namespace leapquant::cuda::step {

// The thin operand of the products with the codes: x of each side as bfloats hi, mid and lo, a row of K each. The
// padding moves neighbouring rows by four banks.
inline constexpr int kTerms = 3;
inline constexpr int kThinRow = kDim + 8;

// Dot products over the key channels that both sides need: window entries from the newest on, old factors, and kn . qn.
inline constexpr int kFirstFactorDot = kEntries;
inline constexpr int kKeyQueryDot = kEntries + kMostFactors;
inline constexpr int kDots = kKeyQueryDot + 1;
static_assert(kDots <= 32, "a lane adds up one of them");

struct alignas(16) SharedStorage {
  uint16_t window_key[kEntries][kDim];
  uint16_t window_gate[kEntries][kDim];
  uint16_t window_update[kEntries][kDim];
  uint16_t key_factor[kMostFactors][kDim];
  uint16_t value_factor[kMostFactors][kDim];
  float window_weight[kEntries];
  uint16_t thin[kSides * kTerms][kThinRow];
  float4 square[kWarps];          // by warp: sums of kx^2 and qx^2, bits of max |kx| and max |qx|
  float largest_scale[kWarps];    // by warp: max |c|
  float2 dot_part[kWarps][kDots];  // by warp; x: with kn, y: with qn
  float2 dot[kWarps][kDots];       // their sums, a copy a warp
  float2 product[kDim];            // codes x thin, by value channel
  float beta;
  char* address[kTensorCount];  // of the program's tensors
};

// A thread is key channel `thread` until the dot products are done, and value channel `thread` after.
struct Place {
  uint32_t thread;
  uint32_t warp;
  uint32_t lane;
  uint32_t g;
  uint32_t t;

  __device__ __forceinline__ Place()
      : thread(threadIdx.x), warp(__shfl_sync(kFullWarp, thread / 32, 0)), lane(thread % 32), g(lane / 4), t(lane % 4) {}
};

// A program: its place in the batch, and its item and head in the tensors.
struct Program {
  uint32_t position;
  int32_t item;
  uint32_t head;
};

__device__ __forceinline__ char* at(const ProgramBytes& tensor, int64_t item, uint32_t head) {
  return tensor.base + item * tensor.item_stride + int64_t{head} * tensor.head_stride;
}

// One of the program's tensors.
template <class T>
__device__ __forceinline__ T* tensor_of(const SharedStorage& smem, Tensor tensor) {
  return reinterpret_cast<T*>(smem.address[tensor]);
}

}  // namespace leapquant::cuda::step
