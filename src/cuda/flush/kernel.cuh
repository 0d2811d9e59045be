// SPDX-License-Identifier: Apache-2.0
//
// The flush: a persistent grid, one program at a time per block of four warps, several blocks a multiprocessor.
//
// S is never formed before the residual. With C the codes, c[k] = s_k[k] d[k] / 127, A = [ubuf | old q] and
// B = [w D kbuf | old u d], the rank-20 part, where d = exp(pcum) and D is the product of the later gates in KDA, and
// d = p and D = 1 in GDN,
//
//   step 1  S = diag(s_v) C diag(c) + A B
//   step 2  Z = S^T q0 = c (C^T (s_v q0)) + B^T (A^T q0),   P = orth Z
//           Y = S P    = s_v (C (c P)) + A (B P),            Q = orth Y
//           U = S^T Q  = c (C^T (s_v Q)) + B^T (A^T Q)
//   step 3  E = S - q'^T u', key scales, value scales, codes
//
// Products with C are of bytes, exactly: the thin operand is an integer of three digits under a power of two. Those of
// the rank-20 part are of bfloats with fp32 sums: updates are exact as bfloats, old factors are three or two of them,
// window keys three in step 2 and two in E (of GDN exact in step 2), a thin operand three, 24 bits: the last of them
// decide how new factors are rounded. What a lane adds up, digits or terms of a value, lies side by side. E starts
// from C diag(c) as a product of halves, and ends as C diag(c) s_v + A B - q'^T u' in fp32.
//
// Key channels lie in shared memory in the order of their places: see key_of_place().
//
// Per program at rank 4: 32,320 bytes read, 24,128 written.
#pragma once

#include "cuda/flush/compress.cuh"

namespace leapquant::cuda {

// Notes a turn's program, and where its tensors are.
template <int kColumns>
__device__ __forceinline__ void enter(SharedStorage<kColumns>& smem, uint32_t thread, int turn,
                                      const Program& program) {
  if (thread == 0) smem.position[turn] = program.position;
  if (thread < kTensorCount && program.position >= 0) smem.address[turn][thread] = at(smem.tensor[thread], program);
}

// Begins the copies of the block's first program, if there is one.
template <Decay kDecay, int kColumns>
__device__ __forceinline__ bool begin_first_program(const FlushArguments& arguments, SharedStorage<kColumns>& smem) {
  const int thread = threadIdx.x;
  if (thread == 0) {
    smem.due.scanned = 0;
    smem.due.phase = blockIdx.x;
    smem.due.start = smem.due.end = 0;
  }
  __syncthreads();
  extend_list(arguments.selection, smem.due, 0);
  const Program program = program_at(arguments.selection, smem.due, 0);
  if (program.position < 0) return false;
  if (thread < kTensorCount) smem.tensor[thread] = arguments.tensor[thread];
  enter(smem, thread, 0, program);
  __syncthreads();
  load_program<kDecay>(arguments, smem, thread, 0);
  if (thread < kDim / 8) smem.diagonal[thread].words[DiagonalTile::kBeside] = make_uint2(0, 0);
  for (int i = thread; i < kColumns * kDim; i += kThreads) {
    if (i / kDim >= arguments.rank) smem.key_factor[i / kDim][i % kDim] = smem.value_factor[i / kDim][i % kDim] = 0;
  }
  return true;
}

// The thread's row of q0 [V, R] to shared memory, by powers of two that bring the columns to ordinary sizes: only their
// directions matter.
template <int kColumns>
__device__ __forceinline__ void prepare_start(const FlushArguments& arguments, SharedStorage<kColumns>& smem) {
  const Place place;
  const float* const source = arguments.start_basis + place.own * arguments.rank;
  ThinRow<kColumns> row;
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    row[r] = r < arguments.rank ? __ldg(source + r) : 0.0f;
    const uint32_t largest = __reduce_max_sync(kFullWarp, __float_as_uint(fabsf(row[r])));
    if (place.lane == 0) smem.partial[place.warp][0][r] = __uint_as_float(largest);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    const auto part = [&](int warp) { return smem.partial[warp][0][r]; };
    row[r] = smem.start[place.own][r] = row[r] * power_to_one(fmaxf(fmaxf(part(0), part(1)), fmaxf(part(2), part(3))));
  }
  write_terms(smem.start_terms, place, row);
}

template <Decay kDecay, int kColumns>
__global__ void __launch_bounds__(kThreads, blocks_per_multiprocessor(kColumns))
    flush_kernel(const __grid_constant__ FlushArguments arguments) {
  auto& smem = *reinterpret_cast<SharedStorage<kColumns>*>(shared_bytes);
  const int rank = arguments.rank;
  const bool in_place = arguments.selection.slot_index != nullptr;

  wait_for_earlier_kernels();
  if (!begin_first_program<kDecay>(arguments, smem)) return;
  prepare_start(arguments, smem);

  bool more = true;
#pragma unroll 1
  for (uint32_t number = 0; more; ++number) {
    extend_list(arguments.selection, smem.due, number + 1);
    char* const* const address = smem.address[number % 2];
    ThinRow<kColumns> value_row;
    ThinRow<kColumns> key_row;  // by place
    CodeFragments codes;        // from the first product with S to E
    {
      const Place place;
      CodeFragments transposed;
      prepare<kDecay>(smem, place, codes, transposed);
      enter(smem, place.thread, (number + 1) % 2, program_at(arguments.selection, smem.due, number + 1));
      load_row<kColumns>(smem.start[place.own], value_row);
      publish_operands();  // the staged window has been read
      prepare_diagonal(smem, place.thread);
      find_factors<kDecay>(smem, place, codes, transposed, rank, value_row, key_row);
    }

    __syncthreads();  // the operands of the last product have been read

    // Step 3: residual.
    Residual residual;
    {
      const Place place;
      store_factors<kColumns>(value_row, 0x80008000u, smem.factors.value[place.own], address[kTargetValueFactor],
                              arguments.target_value_factor_row, place.own, rank);
      store_factors<kColumns>(key_row, 0, smem.factors.key[place.own], address[kTargetKeyFactor],
                              arguments.target_key_factor_row, key_of_place(place.own), rank);
      __syncthreads();
      start_residual(smem, place, codes, arguments.code_exponents, residual);
      subtract_factors(smem, place, residual);
      add_window<kDecay>(smem, residual);
      write_column_parts(smem, place, residual);
    }
    __syncthreads();  // all operands have been read
    const Place place;
    finish_columns(smem, place.thread, address[kTargetKeyScale]);
    more = smem.position[(number + 1) % 2] >= 0;
    if (more) load_program<kDecay>(arguments, smem, place.thread, (number + 1) % 2);
    // Stores to global memory come after the last publish_operands(), which would wait for them.
    if (in_place) reset_window<kDecay>(address, place.thread);
    __syncthreads();
    if (place.thread == 0 && smem.non_finite != 0 && in_place) {
      atomicMin(arguments.selection.first_error_position + 1, smem.position[number % 2]);
    }
    float code_factor[4];
    scale_rows(smem, place, address[kTargetValueScale], residual, code_factor);
    store_codes(smem, residual, place, code_factor, address[kTargetCodes]);
  }
}

}  // namespace leapquant::cuda
