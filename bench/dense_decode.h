// SPDX-License-Identifier: Apache-2.0
//
// Decoding with dense fp32 states: many sequences, as a pool holds them, on several threads.
#pragma once

#include <barrier>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/dense_kernel.h"

namespace leapquant::bench {

class DenseDecode {
 public:
  // Zero states of `programs` programs. `threads` at least 1, the calling one included.
  DenseDecode(const std::string& target, Gate gate, int threads, int64_t programs);
  ~DenseDecode();
  DenseDecode(const DenseDecode&) = delete;
  DenseDecode& operator=(const DenseDecode&) = delete;

  // One token for every program: program n takes item n / heads, head n % heads of `token` and writes row n of `output`
  // [programs, 128].
  void step(const TokenView& token, int64_t heads, Bfloat16* output);

  float* state(int64_t program) { return states_.get() + program * kElements; }  // [128, 128]

  static constexpr int64_t kElements = 128 * 128;

 private:
  struct Unmap {
    size_t bytes;
    void operator()(float* memory) const noexcept;
  };

  void work(int thread);
  void help(int thread);

  DenseKernel kernel_;
  int threads_;
  int64_t programs_;
  std::unique_ptr<float[], Unmap> states_;
  // Of the token in hand.
  TokenView token_;
  int64_t heads_ = 0;
  Bfloat16* output_ = nullptr;
  bool ending_ = false;
  std::barrier<> phase_;  // passed when a token begins, and when it ends
  std::vector<std::jthread> helpers_;
};

}  // namespace leapquant::bench
