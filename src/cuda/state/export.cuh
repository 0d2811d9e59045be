// SPDX-License-Identifier: Apache-2.0
//
// The export of a state: step 1 of the flush, a program a block.
//
//   S[v, k] = codes[v, k] (s_v[v] c[k]) + sum_n value[v, n] key[k, n]
//
// with c[k] = s_k[k] / 127 d[k], and of every window entry and old factor a term n: ubuf and w D kbuf, q and u d, where
// d = exp(pcum) and D is the product of the later gates in KDA, and d = p and D = 1 in GDN. Terms are added in the same
// order whichever way the state lies.
//
// Per program at rank 4: 32,320 bytes read, 65,536 written.
#pragma once

#include "cuda/common/ptx.cuh"
#include "cuda/state/select.cuh"

namespace leapquant::cuda::state {

inline constexpr int kTerms = kEntries + kMostFactors;

// A channel's terms. Those of empty entries, and of factors beyond the rank, are zero.
struct alignas(16) Channel {
  float term[kTerms];
  float scale;
  float unused[3];
};

struct ExportStorage {
  Channel key[kDim];
  Channel value[kDim];
  char codes[kDim][kDim + 4];  // rows in different banks
};

// Where a channel's terms come from.
struct Source {
  const uint16_t* rows;     // [L, 128] bf16, from the channel on
  const uint16_t* factors;  // fp16, from the channel on
  int64_t factor_row;       // in elements
  const float* weight;      // [L]
};

// Copies the codes, 16 bytes at a time.
__device__ __forceinline__ void load_codes(const char* codes, ExportStorage& smem) {
  constexpr int kChunks = kDim / 16;
  for (int n = static_cast<int>(threadIdx.x); n < kDim * kChunks; n += kExportThreads) {
    const uint4 chunk = load_global16(codes + 16 * n);
    auto* const target = reinterpret_cast<uint32_t*>(smem.codes[n / kChunks] + n % kChunks * 16);
    target[0] = chunk.x;
    target[1] = chunk.y;
    target[2] = chunk.z;
    target[3] = chunk.w;
  }
}

__device__ __forceinline__ void load_factors(const Source& source, uint32_t rank, float decay, Channel& channel) {
#pragma unroll
  for (uint32_t r = 0; r < kMostFactors; ++r) {
    channel.term[kEntries + r] =
        r < rank ? __half2float(__ushort_as_half(source.factors[r * source.factor_row])) * decay : 0.0f;
  }
}

__device__ __forceinline__ float bfloat_at(const uint16_t* rows, int entry) {
  return __uint_as_float(uint32_t{rows[entry * kDim]} << 16);
}

// A value channel: updates as they are.
__device__ __forceinline__ void load_value(const Source& source, uint32_t rank, float scale, Channel& channel) {
#pragma unroll
  for (int j = 0; j < kEntries; ++j) {
    channel.term[j] = source.weight[j] != 0.0f ? bfloat_at(source.rows, j) : 0.0f;
  }
  load_factors(source, rank, 1.0f, channel);
  channel.scale = scale;
}

// A key channel: weighted, and decayed by the gates since, by multiplication alone. Without gates the weights have
// decayed.
__device__ __forceinline__ void load_key(const Source& source, const uint16_t* gates, uint32_t rank, float scale,
                                         float decay, Channel& channel) {
  float later = 1.0f;
#pragma unroll
  for (int j = kEntries - 1; j >= 0; --j) {
    const float weight = source.weight[j];
    channel.term[j] = weight != 0.0f ? weight * bfloat_at(source.rows, j) * later : 0.0f;
    if (gates != nullptr) later *= __half2float(__ushort_as_half(gates[j * kDim]));
  }
  load_factors(source, rank, decay, channel);
  channel.scale = divide_by_127(scale) * decay;
}

// Threads of the first half make the key channels, the others the value channels.
__device__ __forceinline__ void load_channels(const StateArguments& arguments, const SlotProgram& program,
                                              ExportStorage& smem) {
  const uint32_t channel = threadIdx.x % kDim;
  const bool keys = threadIdx.x < kDim;
  const auto* const weight = tensor_of<const float>(arguments, kWindowWeight, program);
  const int64_t factor_row = keys ? arguments.factor_row.key : arguments.factor_row.value;
  const Source source{tensor_of<const uint16_t>(arguments, keys ? kWindowKey : kWindowUpdate, program) + channel,
                      tensor_of<const uint16_t>(arguments, keys ? kKeyFactor : kValueFactor, program) + channel,
                      factor_row / static_cast<int64_t>(sizeof(uint16_t)), weight};
  const float scale = tensor_of<const float>(arguments, keys ? kKeyScale : kValueScale, program)[channel];
  if (!keys) return load_value(source, arguments.rank, scale, smem.value[channel]);
  const auto* const decay = tensor_of<const float>(arguments, kCheckpointDecay, program);
  if (arguments.decay == Decay::kByHead)
    return load_key(source, nullptr, arguments.rank, scale, *decay, smem.key[channel]);
  load_key(source, tensor_of<const uint16_t>(arguments, kWindowGate, program) + channel, arguments.rank, scale,
           expf(decay[channel]), smem.key[channel]);
}

// Half of the thread's column of [V, K], or of [K, V]: neighbouring threads write neighbouring elements.
template <bool kByKey>
__device__ __forceinline__ void store_column(const ExportStorage& smem, float* state) {
  constexpr uint32_t kRows = kDim / 2;
  const uint32_t column = threadIdx.x % kDim;
  const uint32_t first = threadIdx.x / kDim * kRows;
  const Channel own = kByKey ? smem.value[column] : smem.key[column];
#pragma unroll 2
  for (uint32_t row = first; row < first + kRows; ++row) {
    const Channel& other = kByKey ? smem.key[row] : smem.value[row];
    const char code = kByKey ? smem.codes[column][row] : smem.codes[row][column];
    float sum = static_cast<float>(static_cast<signed char>(code)) * (own.scale * other.scale);
#pragma unroll
    for (int n = 0; n < kTerms; ++n) sum = fmaf(own.term[n], other.term[n], sum);
    __stcs(state + row * kDim + column, sum);
  }
}

// Whether there is a state to give: a slot whose counter is one.
__device__ __forceinline__ bool has_state(const StateArguments& arguments, const SlotProgram& program) {
  if (!has_slot(program, arguments.num_slots, arguments.errors)) return false;
  const int32_t count = *tensor_of<const int32_t>(arguments, kFillCount, program);
  if (count >= 0 && count <= kEntries) return true;
  record(arguments, ErrorKind::kCounter, program);
  return false;
}

template <bool kByKey>
__global__ void __launch_bounds__(kExportThreads) export_kernel(const __grid_constant__ StateArguments arguments) {
  __shared__ ExportStorage smem;
  const SlotProgram program = program_of(arguments);
  auto* const state = state_of<float>(arguments, program);
  if (!has_state(arguments, program)) {
    for (int n = static_cast<int>(threadIdx.x); n < kDim * kDim; n += kExportThreads) state[n] = 0.0f;
    return;
  }
  load_codes(tensor_of<const char>(arguments, kCodes, program), smem);
  load_channels(arguments, program, smem);
  __syncthreads();
  store_column<kByKey>(smem, state);
}

}  // namespace leapquant::cuda::state
