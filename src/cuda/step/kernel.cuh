// SPDX-License-Identifier: Apache-2.0
//
// The step of one token: a program a block of four warps.
//
// S is never formed. Its products with x = kn and x = qn, the two sides, come apart into sums over the key channels:
//
//   S x = s_v (C (c x))  +  sum_r q_r (u_r . (exp(pcum') x))  +  sum_j ubuf_j w_j ((kbuf_j D_j) . x)
//
// with C the codes and c = s_k / 127 exp(pcum') for KDA. With the decay by head of GDN, p' in place of exp(pcum') and
// w_j at in place of w_j D_j multiply what the sums come to. One pass over the codes serves both sides on the tensor
// cores (see products.cuh). Everything else is fp32, but for the gate of GDN and beta. Sums run in a fixed order.
//
// Per program at rank 4 with h entries. KDA: 19,456 + 576 + 768 h bytes of state and 1,026 of the token read, 1,544
// written. GDN: 19,456 + 68 + 512 h and 772, fewer where heads share keys, read, 780 + 4 h written. Rows of the window
// from h on are not read.
#pragma once

#include "cuda/step/finish.cuh"
#include "cuda/step/products.cuh"

namespace leapquant::cuda::step {

template <Decay kDecay>
__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    step_kernel(const __grid_constant__ StepArguments arguments) {
  __shared__ StorageOf<kDecay> smem;
  const Place place;
  const uint32_t thread = place.thread;
  Program program;
  if (!find_program<kDecay>(arguments, smem, thread, program)) return;
  const int32_t count = __ldcg(tensor_of<int32_t>(smem, kFillCount));
  Codes codes;
  codes.load(tensor_of<char>(smem, kCodes), place);
  const uint32_t gate_channel = gate_channel_of<kDecay>(thread);
  const Scales scales(smem, place, gate_channel);
  const Token token(smem, arguments.gate, place, gate_channel);
  copy_factors(arguments, smem, place);
  uint32_t entries;
  if (!find_entries<kDecay>(arguments, smem, program, thread, count, entries)) {
    wait_for_copies();
    return;
  }
  copy_window<kDecay>(smem, place, entries);

  // T1, T2
  if (place.warp == 0) smem.beta = beta_of(bfloat_of(token.beta_input));
  const Gate<kDecay> gate(arguments, smem, place, token, scales);
  smem.value[thread] = make_uint2(token.value, __float_as_uint(scales.value));
  float power;
  const Sides side = normalize(smem, place, token, gate.code_scale, power);
  // T5 of the keys: nobody reads these rows, and what is written need not be kept.
  const bool in_place = arguments.slot_index != nullptr;
  const uint32_t row = in_place ? entries : 0;
  write_key_row(smem, thread, row, side);
  write_decays(smem, thread, row, gate);
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
  const uint2 value = smem.value[thread];
  const float2 state =
      state_products(smem, place, gate, __uint_as_float(value.y), weights.live, entries, arguments.rank);
  // T4, T5
  const float update = smem.beta * (bfloat_of(value.x) - state.x);
  const float output = fmaf(smem.dot[place.warp][kKeyQueryDot].x, update, state.y);
  write_value_rows(smem, place.value_channel, row, update, output);
  write_weights(smem, thread, gate, entries, in_place);
  const bool finite = finite_decay && isfinite(output) && isfinite(update);
  if (!finite && in_place) record(arguments, Trouble::kNonFinite, program);
}

}  // namespace leapquant::cuda::step
