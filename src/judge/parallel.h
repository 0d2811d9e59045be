// SPDX-License-Identifier: Apache-2.0
//
// Spreads independent pieces of work over threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace leapquant::judge {

// Calls work(n) for every n in [0, count) from up to `threads` threads (0: one for each CPU). The order is not fixed,
// so `work` writes only what belongs to its own n.
template <class Work>
void parallel_for(int64_t count, int threads, const Work& work) {
  const int64_t wanted = threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  std::atomic<int64_t> next{0};
  const auto drain = [&] {
    for (int64_t n = next++; n < count; n = next++) work(n);
  };
  std::vector<std::jthread> helpers;
  for (int64_t i = 1; i < std::min(wanted, count); ++i) helpers.emplace_back(drain);
  drain();
}

}  // namespace leapquant::judge
