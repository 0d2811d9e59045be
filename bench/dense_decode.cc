// SPDX-License-Identifier: Apache-2.0
#include "bench/dense_decode.h"

#include <sys/mman.h>

#include <new>

namespace leapquant::bench {
namespace {

constexpr int64_t kDim = 128;

// Zeroed, and in large pages where the system has them, as the memory of a pool.
float* map_zeros(size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<float*>(memory);
}

}  // namespace

void DenseDecode::Unmap::operator()(float* memory) const noexcept { munmap(memory, bytes); }

DenseDecode::DenseDecode(const std::string& target, Gate gate, int threads, int64_t programs)
    : kernel_(dense_kernel(target, gate)),
      threads_(threads),
      programs_(programs),
      states_(map_zeros(static_cast<size_t>(programs * kElements) * sizeof(float)),
              Unmap{static_cast<size_t>(programs * kElements) * sizeof(float)}),
      phase_(threads) {
  for (int thread = 1; thread < threads; ++thread) helpers_.emplace_back([this, thread] { help(thread); });
}

DenseDecode::~DenseDecode() {
  ending_ = true;
  phase_.arrive_and_wait();
}

void DenseDecode::step(const TokenView& token, int64_t heads, Bfloat16* output) {
  token_ = token;
  heads_ = heads;
  output_ = output;
  phase_.arrive_and_wait();
  work(0);
  phase_.arrive_and_wait();
}

void DenseDecode::help(int thread) {
  for (;;) {
    phase_.arrive_and_wait();
    if (ending_) return;
    work(thread);
    phase_.arrive_and_wait();
  }
}

void DenseDecode::work(int thread) {
  const int64_t begin = programs_ * thread / threads_;
  const int64_t end = programs_ * (thread + 1) / threads_;
  for (int64_t n = begin; n < end; ++n) kernel_(token_.at(n / heads_, n % heads_), state(n), output_ + n * kDim);
}

}  // namespace leapquant::bench
