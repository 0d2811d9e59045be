// SPDX-License-Identifier: Apache-2.0
//
// T1 and T2: the sides kn and qn, the gate, and the thin operand.
#pragma once

#include "cuda/step/load.cuh"

namespace leapquant::cuda::step {

// As in core/numerics.h.
constexpr float kNormFloor = 1e-6f;
constexpr float kSoftplusLinear = 20.0f;
constexpr float kLoudScale = 0x1p-80f;
constexpr float kLoudSquare = 0x1p100f;                // a sum of squares that is not far from overflow, or beyond
constexpr float kQueryLength = 0.088388347648318447f;  // 1 / sqrt(K)

__device__ __forceinline__ double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

__device__ __forceinline__ float scaled_sigmoid(float scale, float x) { return __fdividef(scale, 1.0f + expf(-x)); }
__device__ __forceinline__ double scaled_sigmoid(double scale, double x) { return scale * sigmoid(x); }

template <class Real>
__device__ __forceinline__ Real log_gate(const StepArguments& arguments, const Token& token) {
  const Real input = static_cast<Real>(bfloat_of(token.gate_input)) + static_cast<Real>(token.gate_bias);
  if (arguments.gate == GateKind::kGiven) return input;
  const Real rate = exp(static_cast<Real>(token.log_rate));
  if (arguments.gate == GateKind::kBounded) return scaled_sigmoid(Real{arguments.lower_bound}, rate * input);
  return -rate * (input > Real{kSoftplusLinear} ? input : log1p(exp(input)));
}

// A token's gate. What decays by channel has taken its decay where the channels are at hand; what decays as a whole is
// multiplied by of_window() and of_checkpoint(), where nothing is lost to a decay near the end of the range.
template <Decay kDecay>
struct Gate;

// A thread's channel.
template <>
struct Gate<Decay::kByChannel> {
  float log_gate;     // g
  float decay;        // en
  float log_decay;    // pcum'
  float state_decay;  // exp(pcum')
  float code_scale;   // c = s_k / 127 exp(pcum')

  template <int kRoom>
  __device__ __forceinline__ Gate(const StepArguments& arguments, StorageOf<Decay::kByChannel, kRoom>& /*smem*/,
                                  const Place& /*place*/, const Token& token, const Scales& scales) {
    log_gate = step::log_gate<float>(arguments, token);
    decay = expf(log_gate);
    // g as it is rounded, not within a fused multiply-add: a commit adds what a draft has stored of it.
    log_decay = __fadd_rn(scales.checkpoint_decay, log_gate);
    state_decay = expf(log_decay);
    code_scale = divide_by_127(scales.key) * state_decay;
  }

  static constexpr __device__ float of_window() { return 1.0f; }
  static constexpr __device__ float of_checkpoint() { return 1.0f; }
  // What the checkpoint has seen with it.
  __device__ __forceinline__ float checkpoint_decay() const { return log_decay; }
  __device__ __forceinline__ bool is_finite() const { return isfinite(log_decay); }
};

// The head's: known to all threads after the next barrier.
template <>
struct Gate<Decay::kByHead> {
  const HeadDecay& decay;
  float code_scale;  // c = s_k / 127

  // In double: it is one number, and all weights inherit its error. One warp has the work, not that of beta.
  template <int kRoom>
  __device__ __forceinline__ Gate(const StepArguments& arguments, StorageOf<Decay::kByHead, kRoom>& smem,
                                  const Place& place, const Token& token, const Scales& scales)
      : decay(smem.decay), code_scale(divide_by_127(scales.key)) {
    if (place.warp != 1) return;
    const auto token_decay = static_cast<float>(exp(log_gate<double>(arguments, token)));
    smem.decay = {token_decay, scales.checkpoint_decay * token_decay};
  }

  __device__ __forceinline__ float of_window() const { return decay.token; }
  __device__ __forceinline__ float of_checkpoint() const { return decay.checkpoint; }
  __device__ __forceinline__ float checkpoint_decay() const { return decay.checkpoint; }
  __device__ __forceinline__ bool is_finite() const { return isfinite(decay.checkpoint); }
};

// A thread's channel of kn and qn.
struct Sides {
  float key;
  float query;
};

// What the warps' parts add up to.
struct Norms {
  float key_square;
  float query_square;
  float largest_scale;

  __device__ __forceinline__ explicit Norms(const SharedStorage& smem) {
    float4 total = smem.norm_part[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      const float4 part = smem.norm_part[warp];
      total.x += part.x;
      total.y += part.y;
      // Magnitudes in the order of their bits, NaN largest.
      total.z = __uint_as_float(max(__float_as_uint(total.z), __float_as_uint(part.z)));
    }
    key_square = total.x;
    query_square = total.y;
    largest_scale = total.z;
  }
};

// Passes a barrier.
__device__ __forceinline__ Norms norms_of(SharedStorage& smem, const Place& place, float key, float query,
                                          float code_scale) {
  const uint32_t scale = __reduce_max_sync(kFullWarp, __float_as_uint(fabsf(code_scale)));
  float square[kSides] = {key * key, query * query};
  const float sum = reduce_values<32>(square, place.lane);  // half 0 has the keys'
  if (place.lane % 16 == 0) reinterpret_cast<float*>(&smem.norm_part[place.warp])[place.half] = sum;
  if (place.lane == 0) smem.norm_part[place.warp].z = __uint_as_float(scale);
  __syncthreads();
  return Norms(smem);
}

// kn and qn, and the power of two that brings the largest |c| to one. Rows so loud that their squares might overflow
// are scaled and summed again; NaN counts as loud.
__device__ __forceinline__ Sides normalize(SharedStorage& smem, const Place& place, const Token& token,
                                           float code_scale, float& power) {
  float key = bfloat_of(token.key);
  float query = bfloat_of(token.query);
  float key_floor = kNormFloor;
  float query_floor = kNormFloor;
  Norms norms = norms_of(smem, place, key, query, code_scale);
  const bool loud_key = !(norms.key_square < kLoudSquare);
  const bool loud_query = !(norms.query_square < kLoudSquare);
  if (loud_key || loud_query) {
    key *= loud_key ? kLoudScale : 1.0f;
    query *= loud_query ? kLoudScale : 1.0f;
    key_floor = loud_key ? 0.0f : kNormFloor;
    query_floor = loud_query ? 0.0f : kNormFloor;
    __syncthreads();  // the parts have been read
    norms = norms_of(smem, place, key, query, code_scale);
  }
  power = power_to_one(norms.largest_scale);
  return {key * rsqrtf(norms.key_square + key_floor), query * rsqrtf(norms.query_square + query_floor) * kQueryLength};
}

// beta = bf16(sigmoid(b)): in double, so that no tie is missed.
__device__ __forceinline__ float beta_of(float input) {
  return __bfloat162float(__float2bfloat16_rn(static_cast<float>(sigmoid(static_cast<double>(input)))));
}

// By one warp, to be read at the end of the token: while the window is on its way, which hides what double takes.
__device__ __forceinline__ void write_beta(SharedStorage& smem, const Place& place, const Token& token) {
  if (place.warp == 0) smem.beta = beta_of(bfloat_of(token.beta_input));
}

}  // namespace leapquant::cuda::step
