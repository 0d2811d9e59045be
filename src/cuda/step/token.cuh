// SPDX-License-Identifier: Apache-2.0
//
// T1 to T5 of one token, once its window and its factors are on their way: what a step and a draft share.
#pragma once

#include "cuda/step/finish.cuh"
#include "cuda/step/products.cuh"

namespace leapquant::cuda::step {

// Steps a program whose window has `entries` occupied entries, and writes output, key, update and decays of the new
// one, its rows as number `row` of the targets. Whether they are finite. Passes barriers.
template <Decay kDecay, int kRoom>
__device__ __forceinline__ bool step_token(const StepArguments& arguments, StorageOf<kDecay, kRoom>& smem,
                                           const Place& place, const Codes& codes, const Scales& scales,
                                           const Token& token, const Gate<kDecay>& gate, uint32_t entries,
                                           uint32_t row) {
  // T1, T2
  smem.value[place.thread] = make_uint2(token.value, __float_as_uint(scales.value));
  float power;
  const Sides side = normalize(smem, place, token, gate.code_scale, power);
  // T5 of the keys: nobody reads these rows meanwhile, and what is written need not be kept.
  write_key_row(smem, place.thread, row, side);
  write_decays(smem, place.thread, row, gate);
  const bool finite_decay = gate.is_finite();
  // T3. The window's rows, whose number had to be known first, are the last to arrive.
  add_key_query(smem, place, side);
  const PairSides pair(place, side);
  wait_for_factors();
  add_factors(smem, place, pair, gate, arguments.rank);
  multiply_codes(smem, place, codes, side, pair, power * gate.code_scale, power_inverse(power),
                 arguments.code_exponents);
  wait_for_window();
  const Weights weights(smem, place, gate, entries);
  add_entries(smem, place, pair, gate, entries, weights.live);
  __syncthreads();
  finish_dots(smem, place, weights, arguments.rank);
  const uint2 value = smem.value[place.thread];
  const float2 state =
      state_products(smem, place, gate, __uint_as_float(value.y), weights.live, entries, arguments.rank);
  // T4, T5
  const float update = smem.beta * (bfloat_of(value.x) - state.x);
  const float output = fmaf(smem.dot[place.warp][smem.kKeyQueryDot].x, update, state.y);
  write_value_rows(smem, place.value_channel, row, update, output);
  return finite_decay && isfinite(output) && isfinite(update);
}

}  // namespace leapquant::cuda::step
