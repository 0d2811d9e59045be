// SPDX-License-Identifier: Apache-2.0
//
// Shared memory of a program's step, and which part of it a thread has.
#pragma once

#include "cuda/common/ptx.cuh"
#include "cuda/step/config.h"

namespace leapquant::cuda::step {

// The thin operand of the products with the codes, x of each side, in one of two forms. As signed bytes, the digits of
// a number of 61 bits: 16 rows, of the two words of each side four digits each. They lie as lanes multiply them: 16
// bytes a lane for every 32 keys, in blocks that are padded by eight banks, their sides by sixteen. As bfloats hi, mid
// and lo, which have the range of x: a row of K each, padded by four banks.
inline constexpr int kDigits = 4;
inline constexpr uint32_t kDigitSide = 16 * 16 + 64;
inline constexpr uint32_t kDigitBlock = kSides * kDigitSide + 32;
inline constexpr int kTerms = 3;
inline constexpr int kTermRow = kDim + 8;

inline constexpr uint32_t kRowBytes = 2 * kDim;  // of 16-bit elements

// What any step needs ...
struct alignas(16) SharedStorage {
  union {
    char digits[kDim / 32 * kDigitBlock];
    uint16_t terms[kSides][kTerms][kTermRow];  // written once the digits are known not to be read
  };
  float4 norm_part[kWarps];     // by warp: sums of kx^2 and qx^2, max |c|
  float product[kSides][kDim];  // codes x thin, by value channel
  uint2 value[kDim];            // a thread's own between its arrival and its use: bits of v and of s_v
  float beta;
  char* address[kTensorCount];  // of the program's tensors
};

// ... with room for kRoom entries, those of a window, and of a draft that goes on behind them. Rows have rows in front
// of them that nobody writes when they are read: see Place::pairs_from().
template <int kRoom>
struct alignas(16) WindowStorage : SharedStorage {
  // Dot products over the key channels that both sides need: entries from the newest on, old factors, and kn . qn.
  static constexpr uint32_t kFirstFactorDot = kRoom;
  static constexpr uint32_t kKeyQueryDot = kRoom + kMostFactors;
  static constexpr uint32_t kDots = kKeyQueryDot + 1;

  float window_weight[kWarps][kRoom];  // a copy a warp
  float2 dot_part[kWarps][kDots];      // by warp; x: with kn, y: with qn
  float2 dot[kWarps][kDots];           // their sums, a copy a warp
  uint16_t key_factor[kMostFactors][kDim];
  uint16_t value_factor[kMostFactors][kDim];
  uint16_t window_key[kRoom][kDim];
  uint16_t window_update[kRoom][kDim];
};

// ... and what one of the decays needs beside it.
template <Decay kDecay, int kRoom>
struct StorageOf;
template <int kRoom>
struct StorageOf<Decay::kByChannel, kRoom> : WindowStorage<kRoom> {
  uint16_t window_gate[kRoom][kDim];
};

// A decay that is the same for all channels: what a token does to the state, and what the checkpoint has seen with it.
struct HeadDecay {
  float token;       // at
  float checkpoint;  // p'
};
template <int kRoom>
struct StorageOf<Decay::kByHead, kRoom> : WindowStorage<kRoom> {
  HeadDecay decay;
};

// Dot products and their use are shared out among the halves of a warp: each has the warp's 32 channels, a pair a lane,
// and half of the terms, entries by bit 2 of their age, factors by bit 1 of their number.
__device__ __forceinline__ uint32_t half_of_age(uint32_t age) { return age >> 2 & 1; }
__device__ __forceinline__ uint32_t half_of_factor(uint32_t factor) { return factor >> 1 & 1; }

// Rows of 16-bit elements in shared memory: those of the second half have neighbouring 64 bytes exchanged, so that the
// halves of a warp find theirs in different banks. In bytes.
__device__ __forceinline__ uint32_t row_offset(uint32_t byte, uint32_t half) { return byte ^ half << 6; }

// A thread is key channel `thread` until the dot products are done, and `value_channel` after.
struct Place {
  uint32_t thread;
  uint32_t warp;
  uint32_t lane;
  uint32_t g;
  uint32_t t;
  uint32_t half;
  uint32_t pair_byte;  // of the lane's channels in a row of their half
  uint32_t value_channel;

  __device__ __forceinline__ Place()
      : thread(threadIdx.x),
        warp(__shfl_sync(kFullWarp, thread / 32, 0)),
        lane(thread % 32),
        g(lane / 4),
        t(lane % 4),
        half(lane / 16),
        pair_byte(row_offset(64 * warp + 4 * (lane % 16), half)),
        value_channel(32 * warp + 2 * (lane % 16) + half) {}
  __device__ __forceinline__ uint32_t pair_of(const uint16_t (&row)[kDim]) const {
    return *reinterpret_cast<const uint32_t*>(reinterpret_cast<const char*>(row) + pair_byte);
  }
  // The lane's pair in the row of the entry of age `first`; further rows lie in front of it, an entry's age each. Of
  // ages beyond the occupied entries it is in other rows: up to kPassEntries - 1 of those in front of the window's,
  // factors that have arrived for all, or the last of another tensor's, which are those of entries that are not there.
  template <int kRoom>
  __device__ __forceinline__ const char* pairs_from(const uint16_t (&rows)[kRoom][kDim], uint32_t first,
                                                    uint32_t entries) const {
    const int row = static_cast<int>(entries) - 1 - static_cast<int>(first);
    return reinterpret_cast<const char*>(rows) + row * static_cast<int>(kRowBytes) + pair_byte;
  }
};

// A program: its place in the batch, and its item and head in the tensors.
struct Program {
  uint32_t position;
  int32_t item;
  uint32_t head;
};

// Channels of a token's gate, and which of them is a thread's.
template <Decay kDecay>
inline constexpr uint32_t kGateChannels = kDecay == Decay::kByChannel ? kDim : 1;
template <Decay kDecay>
__device__ __forceinline__ uint32_t gate_channel_of(uint32_t thread) {
  return kDecay == Decay::kByChannel ? thread : 0;
}

// One of the program's tensors.
template <class T>
__device__ __forceinline__ T* tensor_of(const SharedStorage& smem, int tensor) {
  return reinterpret_cast<T*>(smem.address[tensor]);
}

}  // namespace leapquant::cuda::step
