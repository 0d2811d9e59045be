// SPDX-License-Identifier: Apache-2.0
//
// Copies of a program into shared memory, and the reset of its window.
#pragma once

#include "cuda/flush/select.cuh"

namespace leapquant::cuda {

// Window keys and gates as they land: row j, chunks of 16 bytes of which the later entries' are exchanged in fours, so
// that lanes that read entries j and j + 8 at once find them in different banks.
__device__ __forceinline__ uint32_t staged_window_offset(uint32_t entry, uint32_t chunk) {
  return entry * 2 * kDim + ((chunk ^ entry >> 3 << 2) << 4);
}

// Byte offset of a value channel's row of the rank-20 part: chunk 0 ... 15 of 8 channels.
template <int kColumns>
__device__ __forceinline__ uint32_t value_side_offset(uint32_t row, uint32_t chunk) {
  return chunk / 8 * Layout<kColumns>::kValueHalfBytes + row * 128 + ((chunk % 8 ^ (row & 7)) << 4);
}

// A tensor's address in a program, fetched where it stands: a copy right after it would wait for it.
__device__ __forceinline__ char* fetch_address(char* const* address) {
  const uint2 halves = load_shared8(shared_address(address));
  return reinterpret_cast<char*>(static_cast<uint64_t>(halves.y) << 32 | halves.x);
}

// Begins the copies of a turn's program.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ void load_program(const FlushArguments& arguments, SharedStorage<kColumns>& smem,
                                             uint32_t thread, int turn) {
  char* const* const address = smem.address[turn];
  // Of 128 floats, of 16, or of one, a tensor for each warp.
  const uint32_t warp = thread / 32;
  const Tensor tensor = warp == 0 ? kKeyScale : warp == 1 ? kValueScale : warp == 2 ? kCheckpointDecay : kWindowWeight;
  const char* const codes = fetch_address(&address[kCodes]) + thread * 16;
  const char* const keys = fetch_address(&address[kWindowKey]) + thread * 16;
  const char* const updates = fetch_address(&address[kWindowUpdate]) + thread * 16;
  const char* const gates = kDecay == Decay::kByChannel ? fetch_address(&address[kWindowGate]) + thread * 16 : nullptr;
  const char* const floats = fetch_address(&address[tensor]) + thread % 32 * 16;
  {
    const uint32_t target = shared_address(smem.codes) + code_offset(thread / 8, thread % 8);
#pragma unroll
    for (int i = 0; i < 8; ++i) copy_async16(target + i * kThreads * 16, codes + i * kThreads * 16);
  }
  const uint32_t row = thread / 16;
  const uint32_t chunk = thread % 16;
  const uint32_t staged = shared_address(smem.staged[0]) + staged_window_offset(row, chunk);
  const uint32_t staged_later = shared_address(smem.staged[0]) + staged_window_offset(row + 8, chunk);
  const uint32_t target = shared_address(smem.value_side) + value_side_offset<kColumns>(row_of_entry(row), chunk);
  copy_async16(staged, keys);
  copy_async16(staged_later, keys + kThreads * 16);
  if constexpr (kDecay == Decay::kByChannel) {
    constexpr uint32_t kGates = sizeof(smem.staged[0]);
    copy_async16(staged + kGates, gates);
    copy_async16(staged_later + kGates, gates + kThreads * 16);
  }
  copy_async16(target, updates);
  copy_async16((target ^ 4 << 4) + 4 * 128, updates + kThreads * 16);  // entry row + 8
  const uint32_t offset = thread % 32 * 16;
  const uint32_t bytes = warp == 3 ? 4 * kEntries : warp == 2 && kDecay == Decay::kByHead ? 0 : 4 * kDim;
  static_assert(offsetof(SharedStorage<kColumns>, window_weight) ==
                offsetof(SharedStorage<kColumns>, key_scale) + 3 * sizeof(smem.key_scale));
  if (offset < bytes) copy_async16(shared_address(smem.key_scale) + thread * 16, floats);
  if (kDecay == Decay::kByHead && thread == 64) copy_async4(shared_address(smem.decay), address[kCheckpointDecay]);
  if (row < arguments.rank) {
    const char* const key_factor = address[kKeyFactor] + row * arguments.key_factor_row + chunk * 16;
    const char* const value_factor = address[kValueFactor] + row * arguments.value_factor_row + chunk * 16;
    copy_async16(shared_address(smem.key_factor) + thread * 16, key_factor);
    copy_async16(shared_address(smem.value_factor) + thread * 16, value_factor);
  }
}

// Codes as the fragments of S x: rows are value channels, inner indices keys.
template <int kColumns>
__device__ __forceinline__ void load_codes(const SharedStorage<kColumns>& smem, const Place& place,
                                           CodeFragments& codes) {
  const uint32_t row = 16 * place.warp + place.lane % 16;
  const uint32_t first = shared_address(smem.codes) + code_offset(row, place.lane / 16 * 4);
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int step = 0; step < 4; ++step) load_matrices(codes[tile][step], (first ^ step << 4) + 64 * tile * kDim);
  }
}

// ... as those of S^T x: rows are places, inner indices value channels. A transposing load moves pairs of bytes,
// two keys of one channel; those of four channels are sorted into four channels of each key.
template <int kColumns>
__device__ __forceinline__ void load_transposed_codes(const SharedStorage<kColumns>& smem, const Place& place,
                                                      CodeFragments& codes) {
  const uint32_t row = place.lane % 16 + place.lane / 16 * 64;
  const uint32_t first = shared_address(smem.codes) + code_offset(row, place.warp);
#pragma unroll
  for (int tile = 0; tile < 2; ++tile) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint32_t pairs[4];
      load_transposed(pairs, (first ^ 4 * tile << 4) + step * 16 * kDim);
      uint32_t(&fragment)[4] = codes[tile][step];
      fragment[0] = __byte_perm(pairs[0], pairs[1], 0x6240);
      fragment[1] = __byte_perm(pairs[0], pairs[1], 0x7351);
      fragment[2] = __byte_perm(pairs[2], pairs[3], 0x6240);
      fragment[3] = __byte_perm(pairs[2], pairs[3], 0x7351);
    }
  }
}

// What marks a window as empty: weights 0, and gates and decay 1.
template <Decay kDecay>
__device__ __forceinline__ void reset_window(char* const* address, uint32_t thread) {
  char* const weights = fetch_address(&address[kWindowWeight]);
  char* const decay = fetch_address(&address[kCheckpointDecay]);
  if constexpr (kDecay == Decay::kByChannel) {
    constexpr uint32_t kOnes = 0x3C003C00u;
    char* const gates = fetch_address(&address[kWindowGate]) + thread * 16;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      *reinterpret_cast<uint4*>(gates + i * kThreads * 16) = make_uint4(kOnes, kOnes, kOnes, kOnes);
    }
    if (thread < 32) *reinterpret_cast<uint4*>(decay + thread * 16) = make_uint4(0, 0, 0, 0);
  } else {
    if (thread == 0) *reinterpret_cast<float*>(decay) = 1.0f;
  }
  if (thread / 4 == 8) *reinterpret_cast<uint4*>(weights + thread % 4 * 16) = make_uint4(0, 0, 0, 0);
}

}  // namespace leapquant::cuda
