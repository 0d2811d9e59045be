// SPDX-License-Identifier: Apache-2.0
//
// The import of a dense state: steps 2 and 3 of the flush, a program a block, with the state itself in shared memory.
// Everything is fp32, and sums run in a fixed order.
//
//   step 2  Z = S^T q0, P = orth Z;  Y = S P, Q = orth Y;  U = S^T Q
//   step 3  E = S - q'^T u', key scales, value scales, codes
//
// A thread owns key channel and value channel `threadIdx.x`: a row of every thin matrix, a column of S and a row of it.
//
// Per program at rank 4: 65,536 bytes read (bf16: 32,768), 32,320 written.
#pragma once

#include "cuda/common/gram_schmidt.cuh"
#include "cuda/common/residual.cuh"
#include "cuda/common/thin_row.cuh"
#include "cuda/slots/part.cuh"
#include "cuda/state/select.cuh"

namespace leapquant::cuda::state {

template <int kColumns>
struct alignas(16) ImportStorage {
  float key_thin[kDim][kColumns];                // Z, P
  float value_thin[kDim][kColumns];              // q0, Y, Q, then q' as it is rounded
  float state[kDim][kDim + 1];                   // [V, K], then E: rows and columns both in different banks
  float key_inverse[kDim];                       // 1 / s_k'
  float largest[kColumns][kImportThreads / 32];  // of q0's columns, by warp
};

// The block's shared memory: one ImportStorage.
extern __shared__ __align__(16) char import_bytes[];

template <int kColumns>
__device__ __forceinline__ void store_row(const ThinRow<kColumns>& row, ThinRow<kColumns>& target) {
#pragma unroll
  for (int r = 0; r < kColumns; ++r) target[r] = row[r];
}

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(uint16_t bfloat) { return __uint_as_float(uint32_t{bfloat} << 16); }

// Neighbouring threads read neighbouring elements. A state may begin at any element.
template <class Element>
__device__ __forceinline__ void load_elements(const Element* state, bool by_key, float (&smem_state)[kDim][kDim + 1]) {
  const uint32_t channel = threadIdx.x;
#pragma unroll 8
  for (uint32_t row = 0; row < kDim; ++row) {
    const float value = to_float(__ldg(state + row * kDim + channel));
    (by_key ? smem_state[channel][row] : smem_state[row][channel]) = value;
  }
}

template <int kColumns>
__device__ __forceinline__ void load_state(const StateArguments& arguments, const SlotProgram& program,
                                           ImportStorage<kColumns>& smem) {
  const bool by_key = arguments.states.by_key;
  if (arguments.states.narrow) {
    load_elements(state_of<const uint16_t>(arguments, program), by_key, smem.state);
  } else {
    load_elements(state_of<const float>(arguments, program), by_key, smem.state);
  }
}

// q0 [V, R], by powers of two that bring its columns to ordinary sizes: only their directions matter. Passes a barrier.
template <int kColumns>
__device__ __forceinline__ void load_start(const ImportArguments& arguments, ImportStorage<kColumns>& smem) {
  const uint32_t channel = threadIdx.x;
  const uint32_t rank = arguments.state.rank;
  ThinRow<kColumns> row;
#pragma unroll
  for (uint32_t r = 0; r < kColumns; ++r) {
    row[r] = r < rank ? __ldg(arguments.start_basis + channel * rank + r) : 0.0f;
    const uint32_t largest = __reduce_max_sync(kFullWarp, __float_as_uint(fabsf(row[r])));
    if (channel % 32 == 0) smem.largest[r][channel / 32] = __uint_as_float(largest);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kColumns; ++r) {
    const float4 part = *reinterpret_cast<const float4*>(smem.largest[r]);
    row[r] *= power_to_one(fmaxf(fmaxf(part.x, part.y), fmaxf(part.z, part.w)));
  }
  store_row<kColumns>(row, smem.value_thin[channel]);
}

// The thread's row of S x, or of S^T x.
template <bool kTransposed, int kColumns>
__device__ __forceinline__ void multiply(const ImportStorage<kColumns>& smem, const float (&x)[kDim][kColumns],
                                         ThinRow<kColumns>& row) {
#pragma unroll
  for (int r = 0; r < kColumns; ++r) row[r] = 0.0f;
#pragma unroll 8
  for (int n = 0; n < kDim; ++n) {
    ThinRow<kColumns> factor;
    load_row<kColumns>(x[n], factor);
    const float element = kTransposed ? smem.state[n][threadIdx.x] : smem.state[threadIdx.x][n];
#pragma unroll
    for (int r = 0; r < kColumns; ++r) row[r] = fmaf(element, factor[r], row[r]);
  }
}

// Writes the thread's row of a thin matrix, which then becomes orthonormal. Between two barriers.
template <int kColumns>
__device__ __forceinline__ void orthonormalize(const ThinRow<kColumns>& row, uint32_t rank,
                                               float (&matrix)[kDim][kColumns]) {
  store_row<kColumns>(row, matrix[threadIdx.x]);
  __syncthreads();
  if (threadIdx.x < 32) orthonormalize_columns(matrix, static_cast<int>(rank));
  __syncthreads();
}

// Step 2: Q in smem.value_thin, and the thread's row of U.
template <int kColumns>
__device__ __forceinline__ void find_factors(ImportStorage<kColumns>& smem, uint32_t rank, ThinRow<kColumns>& key_row) {
  multiply<true>(smem, smem.value_thin, key_row);
  orthonormalize<kColumns>(key_row, rank, smem.key_thin);
  ThinRow<kColumns> value_row;
  multiply<false>(smem, smem.key_thin, value_row);
  orthonormalize<kColumns>(value_row, rank, smem.value_thin);
  multiply<true>(smem, smem.value_thin, key_row);
}

// Stores the thread's row of factors, and leaves it as it has been rounded.
template <int kColumns>
__device__ __forceinline__ void round_factors(ThinRow<kColumns>& row, uint16_t* target, int64_t row_bytes,
                                              uint32_t rank) {
#pragma unroll
  for (uint32_t r = 0; r < kColumns; ++r) {
    const uint16_t rounded = saturate_to_half(row[r]);
    row[r] = __half2float(__ushort_as_half(rounded));
    if (r < rank) target[r * (row_bytes / static_cast<int64_t>(sizeof(uint16_t))) + threadIdx.x] = rounded;
  }
}

// E of the thread's column in place of S, and s_k'. Returns whether the state was finite there.
template <int kColumns>
__device__ __forceinline__ bool subtract_factors(ImportStorage<kColumns>& smem, const ThinRow<kColumns>& key_row,
                                                 float* key_scales) {
  float sum = 0.0f;
#pragma unroll 4
  for (int v = 0; v < kDim; ++v) {
    ThinRow<kColumns> factor;
    load_row<kColumns>(smem.value_thin[v], factor);
    float& element = smem.state[v][threadIdx.x];
    float rest = element;
#pragma unroll
    for (int r = 0; r < kColumns; ++r) rest = fmaf(-factor[r], key_row[r], rest);
    element = rest;
    sum += fabsf(rest);
  }
  const float key_scale = key_scale_of(sum);
  key_scales[threadIdx.x] = key_scale;
  smem.key_inverse[threadIdx.x] = divide(1.0f, key_scale);
  return is_finite_sum(sum);
}

// s_v' and the codes of the thread's row of E.
template <int kColumns>
__device__ __forceinline__ void store_codes(const ImportStorage<kColumns>& smem, float* value_scales, char* codes) {
  const auto scaled = [&](int k) { return smem.state[threadIdx.x][k] * smem.key_inverse[k]; };
  float largest = 0.0f;
#pragma unroll 8
  for (int k = 0; k < kDim; ++k) largest = fmaxf(largest, fabsf(scaled(k)));
  const float value_scale = value_scale_of(largest);
  value_scales[threadIdx.x] = value_scale;
  const float factor = code_factor_of(value_scale);
#pragma unroll 1
  for (int k = 0; k < kDim; k += 16) {
    uint32_t word[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int first = k + 4 * i;
      word[i] = codes_of(scaled(first), scaled(first + 1), scaled(first + 2), scaled(first + 3), factor);
    }
    *reinterpret_cast<uint4*>(codes + threadIdx.x * kDim + k) = make_uint4(word[0], word[1], word[2], word[3]);
  }
}

// The counter to begin with, in [0, L); anything else is reported.
__device__ __forceinline__ bool find_first_entry(const ImportArguments& arguments, const SlotProgram& program,
                                                 int32_t& first_entry) {
  first_entry = 0;
  if (arguments.first_entry.base == nullptr) return true;
  first_entry = *reinterpret_cast<const int32_t*>(tensor_at(arguments.first_entry, program.position, program.head));
  if (first_entry >= 0 && first_entry < kEntries) return true;
  record(arguments.state, ErrorKind::kCounter, program);
  return false;
}

// The window of a new slot, and the counter.
__device__ __forceinline__ void store_window(const ImportArguments& arguments, const SlotProgram& program,
                                             int32_t first_entry) {
#pragma unroll
  for (int i = slots::kRegion + 1; i < slots::kPartCount; ++i) {
    slots::reset_part(arguments.parts.of[i], program);
  }
  if (threadIdx.x == 0) *tensor_of<int32_t>(arguments.state, kFillCount, program) = first_entry;
}

template <int kColumns>
__global__ void __launch_bounds__(kImportThreads) import_kernel(const __grid_constant__ ImportArguments arguments) {
  auto& smem = *reinterpret_cast<ImportStorage<kColumns>*>(import_bytes);
  const StateArguments& state = arguments.state;
  const SlotProgram program = program_of(state);
  int32_t first_entry;
  if (!has_slot(program, state.num_slots, state.errors) || !find_first_entry(arguments, program, first_entry)) return;
  load_state(state, program, smem);
  load_start(arguments, smem);
  __syncthreads();
  // Step 2
  ThinRow<kColumns> key_row;
  find_factors(smem, state.rank, key_row);
  round_factors<kColumns>(key_row, tensor_of<uint16_t>(state, kKeyFactor, program), state.factor_row.key, state.rank);
  ThinRow<kColumns> value_row;
  load_row<kColumns>(smem.value_thin[threadIdx.x], value_row);
  round_factors<kColumns>(value_row, tensor_of<uint16_t>(state, kValueFactor, program), state.factor_row.value,
                          state.rank);
  __syncthreads();  // Q has been read
  store_row<kColumns>(value_row, smem.value_thin[threadIdx.x]);
  __syncthreads();
  // Step 3
  const bool finite = subtract_factors(smem, key_row, tensor_of<float>(state, kKeyScale, program));
  if (__syncthreads_or(!finite)) record(state, ErrorKind::kNonFinite, program);
  store_codes(smem, tensor_of<float>(state, kValueScale, program), tensor_of<char>(state, kCodes, program));
  store_window(arguments, program, first_entry);
}

}  // namespace leapquant::cuda::state
