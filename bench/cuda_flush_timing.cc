// SPDX-License-Identifier: Apache-2.0
//
// Kernel time of the CUDA backend's flush in place, against a copy of the same bytes in the same run. Graphs of eight
// flushes on eight disjoint sets of slots in rotation, so that each finds its data outside the L2 cache.
//
// usage: cuda_flush_timing [RANK [HEADS]]
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "judge/families.h"
#include "judge/pool_io.h"
#include "judge/verify.h"
#include "leapquant/leapquant.hpp"

namespace {

using namespace leapquant;

constexpr int kSets = 8;
constexpr int kRuns = 31;

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

size_t tensor_bytes(const lq_tensor& tensor) {
  size_t bytes = tensor.dtype == LQ_FLOAT16 || tensor.dtype == LQ_BFLOAT16 ? 2 : 4;
  for (int d = 0; d < tensor.ndim; ++d) bytes *= static_cast<size_t>(tensor.shape[d]);
  return bytes;
}

// Median microseconds of one of the kSets calls that `enqueue(set, stream)` makes.
template <class Enqueue>
double median_us(Enqueue enqueue) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  check_cuda(cudaEventCreate(&begin));
  check_cuda(cudaEventCreate(&end));
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int set = 0; set < kSets; ++set) enqueue(set, stream);
  check_cuda(cudaStreamEndCapture(stream, &graph));
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  std::vector<double> times;
  for (int run = 0; run < kRuns; ++run) {
    check_cuda(cudaEventRecord(begin, stream));
    check_cuda(cudaGraphLaunch(executable, stream));
    check_cuda(cudaEventRecord(end, stream));
    check_cuda(cudaEventSynchronize(end));
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin, end));
    if (run > 0) times.push_back(1e3 * milliseconds / kSets);
  }
  check_cuda(cudaGraphExecDestroy(executable));
  check_cuda(cudaGraphDestroy(graph));
  check_cuda(cudaEventDestroy(begin));
  check_cuda(cudaEventDestroy(end));
  check_cuda(cudaStreamDestroy(stream));
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

// Slots [1, slots) filled with the programs of slot 0 of `inputs`.
void fill(const Pool& pool, const judge::FlushInputs& inputs, int64_t slots) {
  const lq_pool_tensors t = pool.tensors();
  const Pool host(Context(), judge::public_geometry(inputs.geometry), 2);
  const lq_pool_tensors mirror = host.tensors();
  judge::write_slot(mirror, 1, inputs, 0);
  const lq_tensor* const from[] = {&mirror.raw, &mirror.kbuf, &mirror.ubuf, &mirror.w, &mirror.gbuf, &mirror.pcum};
  const lq_tensor* const to[] = {&t.raw, &t.kbuf, &t.ubuf, &t.w, &t.gbuf, &t.pcum};
  for (int i = 0; i < 6; ++i) {
    const size_t slot = tensor_bytes(*from[i]) / 2;
    auto* const base = static_cast<char*>(to[i]->data) + slot;
    check_cuda(cudaMemcpy(base, static_cast<char*>(from[i]->data) + slot, slot, cudaMemcpyHostToDevice));
    for (int64_t done = 1; done < slots - 1; done *= 2) {
      const int64_t next = std::min(done, slots - 1 - done);
      check_cuda(cudaMemcpy(base + done * slot, base, next * slot, cudaMemcpyDeviceToDevice));
    }
  }
}

void set_counters(const Pool& pool, std::vector<int32_t> counters) {
  check_cuda(cudaMemcpy(pool.tensors().hcnt.data, counters.data(), counters.size() * 4, cudaMemcpyHostToDevice));
}

void run(int32_t rank, int32_t heads) {
  const Context context("cuda");
  judge::FamilyRequest request;
  request.family = judge::Family::kRandom;
  request.geometry.num_heads = request.geometry.num_key_heads = heads;
  request.geometry.rank = rank;
  Result<judge::FlushInputs> inputs = judge::make_inputs(request);
  if (!inputs.ok()) throw std::runtime_error(inputs.status().message());
  void* basis = nullptr;
  check_cuda(cudaMalloc(&basis, inputs.value().q0.size() * 4));
  check_cuda(cudaMemcpy(basis, inputs.value().q0.data(), inputs.value().q0.size() * 4, cudaMemcpyHostToDevice));
  const lq_tensor start_basis = tensor(basis, LQ_FLOAT32, {128, rank}, {LQ_DEVICE_CUDA, 0});
  const double program_bytes = 32320.0 + 24128.0 + 2 * 512.0 * (rank - 4);

  std::printf("rank %d, heads %d, %.0f bytes a program; times in us\n", rank, heads, program_bytes);
  std::printf("batch  stream  all due  of stream  1/16 due  of all/16  none due\n");
  for (const int64_t batch : {16, 32, 64, 128, 256, 512}) {
    const int64_t slots = kSets * batch + 1;
    const Pool pool(context, judge::public_geometry(request.geometry), slots);
    fill(pool, inputs.value(), slots);
    std::vector<int32_t> indices(static_cast<size_t>(kSets * batch));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int32_t>(i) + 1;
    void* index_memory = nullptr;
    check_cuda(cudaMalloc(&index_memory, indices.size() * 4));
    check_cuda(cudaMemcpy(index_memory, indices.data(), indices.size() * 4, cudaMemcpyHostToDevice));
    const auto flush = [&](int set, cudaStream_t stream) {
      const lq_tensor idx =
          tensor(static_cast<int32_t*>(index_memory) + set * batch, LQ_INT32, {batch}, {LQ_DEVICE_CUDA, 0});
      pool.flush_inplace(idx, start_basis, stream);
    };
    std::vector<int32_t> counters(static_cast<size_t>(slots * heads), 16);
    set_counters(pool, counters);
    const double all = median_us(flush);
    uint32_t state = 12345;
    for (int32_t& counter : counters) {
      state = state * 1664525u + 1013904223u;
      counter = state >> 28 == 0 ? 16 : 5;
    }
    set_counters(pool, counters);
    const double few = median_us(flush);
    set_counters(pool, std::vector<int32_t>(counters.size(), 0));
    const double none = median_us(flush);

    const auto half = static_cast<size_t>(program_bytes * static_cast<double>(batch * heads) / 2);
    void* copies = nullptr;
    check_cuda(cudaMalloc(&copies, 2 * half * kSets));
    check_cuda(cudaMemset(copies, 1, 2 * half * kSets));
    const double stream_us = median_us([&](int set, cudaStream_t stream) {
      char* const from = static_cast<char*>(copies) + 2 * half * static_cast<size_t>(set);
      check_cuda(cudaMemcpyAsync(from + half, from, half, cudaMemcpyDeviceToDevice, stream));
    });
    check_cuda(cudaFree(copies));
    check_cuda(cudaFree(index_memory));
    std::printf("%5lld  %6.1f  %7.1f  %8.1f%%  %8.1f  %9.2f  %8.2f\n", static_cast<long long>(batch), stream_us, all,
                100 * stream_us / all, few, few / (all / 16), none);
    std::fflush(stdout);
  }
  check_cuda(cudaFree(basis));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? std::atoi(argv[1]) : 4, argc > 2 ? std::atoi(argv[2]) : 32);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_flush_timing: %s\n", error.what());
    return 1;
  }
}
