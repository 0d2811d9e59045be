// SPDX-License-Identifier: Apache-2.0
//
// T1 and T2: the sides kn and qn, the gate, and the thin operand.
#pragma once

#include "cuda/step/load.cuh"

namespace leapquant::cuda::step {

// As in core/numerics.h.
constexpr float kNormFloor = 1e-6f;
constexpr float kSoftplusLinear = 20.0f;
constexpr float kLoudInput = 0x1p40f;
constexpr float kLoudScale = 0x1p-80f;
constexpr float kQueryLength = 0.088388347648318447f;  // 1 / sqrt(K)

struct Gate {
  float decay;            // en
  float log_decay;        // pcum'
  float state_decay;      // exp(pcum')
  float code_scale;       // c = s_k / 127 exp(pcum')
};

__device__ __forceinline__ float log_gate(const StepArguments& arguments, const Token& token) {
  if (arguments.gate == GateKind::kGiven) return token.gate;
  const float rate = expf(token.log_rate);
  if (arguments.gate == GateKind::kBounded) {
    return __fdividef(arguments.lower_bound, 1.0f + expf(-rate * token.gate));
  }
  return -rate * (token.gate > kSoftplusLinear ? token.gate : log1pf(expf(token.gate)));
}

__device__ __forceinline__ Gate gate_of(const StepArguments& arguments, const Token& token, const Scales& scales) {
  const float gate = log_gate(arguments, token);
  const float log_decay = scales.log_decay + gate;
  const float state_decay = expf(log_decay);
  return {expf(gate), log_decay, state_decay, divide_by_127(scales.key) * state_decay};
}

__device__ __forceinline__ uint32_t magnitude_bits(float x) { return __float_as_uint(fabsf(x)); }

// A thread's channel of kn and qn.
struct Sides {
  float key;
  float query;
};

// Sums of squares over the block, and the power of two that brings the largest |c| to one. Loud rows, whose squares
// would overflow, are scaled and summed again. Waits for the copies and passes a barrier.
__device__ __forceinline__ Sides normalize(SharedStorage& smem, const Place& place, const Token& token,
                                           const Gate& gate, float& power) {
  float key = token.key;
  float query = token.query;
  float key_floor = kNormFloor;
  float query_floor = kNormFloor;
  const uint32_t scale = __reduce_max_sync(kFullWarp, magnitude_bits(gate.code_scale));
  if (place.lane == 0) smem.largest_scale[place.warp] = __uint_as_float(scale);
#pragma unroll 1
  for (;;) {
    const uint32_t largest_key = __reduce_max_sync(kFullWarp, magnitude_bits(key));
    const uint32_t largest_query = __reduce_max_sync(kFullWarp, magnitude_bits(query));
    float square[2] = {key * key, query * query};
    const float sum = reduce_values(square, place.lane);
    const float other = __shfl_xor_sync(kFullWarp, sum, 16);  // lanes below 16 have the keys'
    if (place.lane == 0) {
      smem.square[place.warp] = make_float4(sum, other, __uint_as_float(largest_key), __uint_as_float(largest_query));
    }
    wait_for_copies();
    __syncthreads();
    float4 total = smem.square[0];
    uint32_t loudest_key = __float_as_uint(total.z);
    uint32_t loudest_query = __float_as_uint(total.w);
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) {
      const float4 part = smem.square[warp];
      total.x += part.x;
      total.y += part.y;
      loudest_key = max(loudest_key, __float_as_uint(part.z));
      loudest_query = max(loudest_query, __float_as_uint(part.w));
    }
    const bool loud_key = loudest_key > __float_as_uint(kLoudInput);
    const bool loud_query = loudest_query > __float_as_uint(kLoudInput);
    const bool seen = key_floor == 0.0f || query_floor == 0.0f;  // NaN stays loud
    if (seen || !(loud_key || loud_query)) {
      const float4 scales = *reinterpret_cast<const float4*>(smem.largest_scale);
      power = power_to_one(__uint_as_float(max(max(__float_as_uint(scales.x), __float_as_uint(scales.y)),
                                               max(__float_as_uint(scales.z), __float_as_uint(scales.w)))));
      return {key * rsqrtf(total.x + key_floor), query * rsqrtf(total.y + query_floor) * kQueryLength};
    }
    if (loud_key) {
      key *= kLoudScale;
      key_floor = 0.0f;
    }
    if (loud_query) {
      query *= kLoudScale;
      query_floor = 0.0f;
    }
    __syncthreads();  // the sums have been read
  }
}

// x = 2^n c kn and 2^n c qn as three bfloats each.
__device__ __forceinline__ void write_thin(SharedStorage& smem, const Place& place, const Sides& side,
                                           float code_scale) {
  const BfloatPair terms = split_pair(code_scale * side.key, code_scale * side.query);
  const uint32_t term[kTerms] = {terms.hi, terms.mid, terms.lo};
#pragma unroll
  for (int i = 0; i < kTerms; ++i) {
    smem.thin[i][place.thread] = static_cast<uint16_t>(term[i]);
    smem.thin[kTerms + i][place.thread] = static_cast<uint16_t>(term[i] >> 16);
  }
}

// beta = bf16(sigmoid(b)): in double, so that no tie is missed.
__device__ __forceinline__ float beta_of(float input) {
  return __bfloat162float(__float2bfloat16_rn(static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(input))))));
}

}  // namespace leapquant::cuda::step
