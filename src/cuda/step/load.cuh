// SPDX-License-Identifier: Apache-2.0
//
// What a step reads: the token and a thread's channels into registers, window rows and factors into shared memory.
#pragma once

#include "cuda/step/storage.cuh"

namespace leapquant::cuda::step {

__device__ __forceinline__ float bfloat_at(const uint16_t* row, uint32_t channel) {
  return __uint_as_float(uint32_t{__ldg(row + channel)} << 16);
}

// A thread's channel of the token.
struct Token {
  float query;
  float key;
  float value;
  float gate;  // pre-activation with its bias, or the log-gate
  float log_rate;
  float beta_input;

  __device__ __forceinline__ Token(const SharedStorage& smem, GateKind kind, uint32_t channel)
      : query(bfloat_at(tensor_of<uint16_t>(smem, kQueryInput), channel)),
        key(bfloat_at(tensor_of<uint16_t>(smem, kKeyInput), channel)),
        value(bfloat_at(tensor_of<uint16_t>(smem, kValueInput), channel)),
        beta_input(bfloat_at(tensor_of<uint16_t>(smem, kBetaInput), 0)) {
    if (kind == GateKind::kGiven) {
      gate = __ldg(tensor_of<float>(smem, kLogGate) + channel);
      log_rate = 0.0f;
    } else {
      gate = bfloat_at(tensor_of<uint16_t>(smem, kGateInput), channel) +
             __ldg(tensor_of<float>(smem, kGateBias) + channel);
      log_rate = __ldg(tensor_of<float>(smem, kLogRate));
    }
  }
};

// Codes as a lane multiplies them: rows 32 warp + 8 i + g, keys 64 c + 16 t ... 64 c + 16 t + 15.
struct Codes {
  uint4 of[4][2];  // [i][c]

  __device__ __forceinline__ void load(const char* codes, const Place& place) {
    const char* const first = codes + (32 * place.warp + place.g) * kDim + 16 * place.t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) of[i][c] = load_streaming16(first + i * 8 * kDim + 64 * c);
    }
  }
};

// A thread's channels of the scales and of the log-decay.
struct Scales {
  float key;
  float value;
  float log_decay;

  __device__ __forceinline__ Scales(const SharedStorage& smem, uint32_t channel)
      : key(__ldg(tensor_of<float>(smem, kKeyScale) + channel)),
        value(__ldg(tensor_of<float>(smem, kValueScale) + channel)),
        log_decay(tensor_of<float>(smem, kLogDecay)[channel]) {}
};

// The first `count` rows, 16 bytes a thread: eight rows at once.
__device__ __forceinline__ void copy_rows(const uint16_t (&smem)[kEntries][kDim], const char* rows, uint32_t thread,
                                          uint32_t count) {
  const uint32_t target = shared_address(smem) + 16 * thread;
#pragma unroll
  for (uint32_t first = 0; first < kEntries; first += 8) {
    if (first + thread / 16 < count) copy_async16(target + first * 2 * kDim, rows + 16 * thread + first * 2 * kDim);
  }
}

__device__ __forceinline__ void copy_factors(const StepArguments& arguments, SharedStorage& smem, uint32_t thread) {
  const uint32_t row = thread / 16;
  const uint32_t byte = thread % 16 * 16;
  if (row >= arguments.rank) return;
  copy_async16(shared_address(smem.key_factor[row]) + byte,
               tensor_of<char>(smem, kKeyFactor) + row * arguments.factor_row.key + byte);
  copy_async16(shared_address(smem.value_factor[row]) + byte,
               tensor_of<char>(smem, kValueFactor) + row * arguments.factor_row.value + byte);
}

// The occupied entries alone, and all weights.
__device__ __forceinline__ void copy_window(SharedStorage& smem, uint32_t thread, uint32_t entries) {
  copy_rows(smem.window_key, tensor_of<char>(smem, kWindowKey), thread, entries);
  copy_rows(smem.window_gate, tensor_of<char>(smem, kWindowGate), thread, entries);
  copy_rows(smem.window_update, tensor_of<char>(smem, kWindowUpdate), thread, entries);
  if (thread < kEntries / 4) {
    copy_async16(shared_address(smem.window_weight) + 16 * thread, tensor_of<char>(smem, kWindowWeight) + 16 * thread);
  }
}

}  // namespace leapquant::cuda::step
