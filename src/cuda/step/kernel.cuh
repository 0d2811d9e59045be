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
// Per program at rank 4 with h entries. KDA: 19,456 + 580 + 768 h bytes of state and 1,026 of the token read, 1,544
// written. GDN: 19,456 + 72 + 512 h and 772, fewer where heads share keys, read, 780 + 4 h written. Rows of the window
// from h on are not read.
#pragma once

#include "cuda/step/token.cuh"

namespace leapquant::cuda::step {

template <Decay kDecay>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(kDecay))
    step_kernel(const __grid_constant__ StepArguments arguments) {
  __shared__ StorageOf<kDecay, kEntries> smem;
  const Place place;
  const uint32_t thread = place.thread;
  Program program;
  wait_for_earlier_kernels();
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
  copy_weights(smem, place);
  copy_window<kDecay>(smem, place, entries, entries);
  write_beta(smem, place, token);
  const Gate<kDecay> gate(arguments, smem, place, token, scales);
  const bool in_place = arguments.slot_index != nullptr;
  const bool finite = step_token(arguments, smem, place, codes, scales, token, gate, entries, in_place ? entries : 0);
  write_weights(smem, thread, gate, entries, !in_place);
  if (!in_place) return;
  if (thread == 0) *tensor_of<int32_t>(smem, kFillCount) = static_cast<int32_t>(entries + 1);
  if (!finite) record_error(arguments.errors, ErrorKind::kNonFinite, program.position);
}

}  // namespace leapquant::cuda::step
