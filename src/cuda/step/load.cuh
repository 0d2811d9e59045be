// SPDX-License-Identifier: Apache-2.0
//
// What a step reads: the token and a thread's channels into registers, window rows and factors into shared memory.
#pragma once

#include "cuda/step/storage.cuh"

namespace leapquant::cuda::step {

__device__ __forceinline__ float bfloat_of(uint32_t bits) { return __uint_as_float(bits << 16); }

// A thread's channels of the token, as they come: what was computed with them here would wait for them before the
// copies behind could begin.
struct Token {
  uint16_t query;
  uint16_t key;
  uint16_t value;
  uint16_t beta_input;
  uint16_t gate_input;  // 0 when the gate is given
  float gate_bias;      // then the log-gate
  float log_rate;

  __device__ __forceinline__ Token(const SharedStorage& smem, GateKind kind, const Place& place, uint32_t gate_channel)
      : query(__ldg(tensor_of<uint16_t>(smem, kQueryInput) + place.thread)),
        key(__ldg(tensor_of<uint16_t>(smem, kKeyInput) + place.thread)),
        value(__ldg(tensor_of<uint16_t>(smem, kValueInput) + place.value_channel)),
        beta_input(__ldg(tensor_of<uint16_t>(smem, kBetaInput))),
        gate_input(0),
        log_rate(0.0f) {
    const bool given = kind == GateKind::kGiven;
    gate_bias = __ldg(tensor_of<float>(smem, given ? kLogGate : kGateBias) + gate_channel);
    if (given) return;
    gate_input = __ldg(tensor_of<uint16_t>(smem, kGateInput) + gate_channel);
    log_rate = __ldg(tensor_of<float>(smem, kLogRate));
  }
};

// Codes as a lane multiplies them: rows 32 warp + 8 i + g, keys 64 c + 16 t ... 64 c + 16 t + 15. A load takes half of
// each row's line; the first cache keeps the other half for the next.
struct Codes {
  uint4 of[4][2];  // [i][c]

  __device__ __forceinline__ void load(const char* codes, const Place& place) {
    const char* const first = codes + (32 * place.warp + place.g) * kDim + 16 * place.t;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int c = 0; c < 2; ++c) of[i][c] = load_constant16(first + i * 8 * kDim + 64 * c);
    }
  }
};

// A thread's channels of the scales, and its part of what the checkpoint has seen: pcum or p.
struct Scales {
  float key;
  float value;
  float checkpoint_decay;

  __device__ __forceinline__ Scales(const SharedStorage& smem, const Place& place, uint32_t gate_channel)
      : key(__ldg(tensor_of<float>(smem, kKeyScale) + place.thread)),
        value(__ldg(tensor_of<float>(smem, kValueScale) + place.value_channel)),
        checkpoint_decay(tensor_of<float>(smem, kCheckpointDecay)[gate_channel]) {}
};

// Copies. A warp copies what it reads itself, the 64 bytes of its channels in each row: eight rows at once, 16 bytes a
// lane. Addresses are fetched before the first of several: a copy right after a load from shared memory waits for it.

// A lane's row, and its bytes in a row.
struct CopyPlace {
  uint32_t row;
  uint32_t byte;

  __device__ __forceinline__ explicit CopyPlace(const Place& place)
      : row(place.lane / 4), byte(64 * place.warp + 16 * (place.lane % 4)) {}
};

// Row `row` of those of `count`, and the eighth behind it.
template <int kRoom>
__device__ __forceinline__ void copy_rows(const uint16_t (&smem)[kRoom][kDim], const char* source, uint32_t row,
                                          uint32_t target, uint32_t count) {
  constexpr uint32_t kEightRows = 8 * kRowBytes;
  if (row < count) copy_async16(shared_address(smem) + target, source);
  if (row + 8 < count) copy_async16(shared_address(smem) + target + kEightRows, source + kEightRows);
}

template <int kRoom>
__device__ __forceinline__ void copy_factors(const StepArguments& arguments, WindowStorage<kRoom>& smem,
                                             const Place& place) {
  const CopyPlace own(place);
  const char* const keys = tensor_of<char>(smem, kKeyFactor) + own.row * arguments.factor_row.key + own.byte;
  const char* const values = tensor_of<char>(smem, kValueFactor) + own.row * arguments.factor_row.value + own.byte;
  const uint32_t target = own.row * kRowBytes + row_offset(own.byte, half_of_factor(own.row));
  if (own.row < arguments.rank) {
    copy_async16(shared_address(smem.key_factor) + target, keys);
    copy_async16(shared_address(smem.value_factor) + target, values);
  }
  end_copy_group();
}

// The weights of all of the window's entries.
template <int kRoom>
__device__ __forceinline__ void copy_weights(WindowStorage<kRoom>& smem, const Place& place) {
  const char* const weights = tensor_of<char>(smem, kWindowWeight) + 16 * place.lane;
  if (place.lane < kEntries / 4) {
    copy_async16(shared_address(smem.window_weight[place.warp]) + 16 * place.lane, weights);
  }
}

// The rows of `count` entries of the window, the first of `entries` that there are.
template <Decay kDecay, int kRoom>
__device__ __forceinline__ void copy_window(StorageOf<kDecay, kRoom>& smem, const Place& place, uint32_t count,
                                            uint32_t entries) {
  const CopyPlace own(place);
  const uint32_t offset = own.row * kRowBytes + own.byte;
  const char* const keys = tensor_of<char>(smem, kWindowKey) + offset;
  [[maybe_unused]] const char* const gates = tensor_of<char>(smem, kWindowGate) + offset;
  const char* const updates = tensor_of<char>(smem, kWindowUpdate) + offset;
  // Eight entries on, an age has the same bit 2.
  const uint32_t target = own.row * kRowBytes + row_offset(own.byte, half_of_age(entries - 1 - own.row));
  copy_rows(smem.window_key, keys, own.row, target, count);
  if constexpr (kDecay == Decay::kByChannel) copy_rows(smem.window_gate, gates, own.row, target, count);
  copy_rows(smem.window_update, updates, own.row, target, count);
  end_copy_group();
}

// ... and their arrival. Before the second, the first group has arrived.
__device__ __forceinline__ void wait_for_factors() {
  wait_for_copy_groups<1>();
  __syncwarp();
}
__device__ __forceinline__ void wait_for_window() {
  wait_for_copy_groups<0>();
  __syncwarp();
}

}  // namespace leapquant::cuda::step
