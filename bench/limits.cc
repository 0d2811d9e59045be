// SPDX-License-Identifier: Apache-2.0
#include "bench/limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "bench/multiply_add_peak.h"
#include "bench/stopwatch.h"

namespace leapquant::bench {
namespace {

constexpr int kRepetitions = 7;
constexpr size_t kStreamBytes = size_t{256} << 20;  // of each of the two streams, over all threads

// Best time of `work(thread)` run by all threads at once, in seconds.
template <class Work>
double best_parallel_time(int threads, const Work& work) {
  double best = 1e30;
  std::barrier ready(threads);
  Stopwatch watch;
  const auto repeat = [&](int thread) {
    for (int repetition = 0; repetition < kRepetitions; ++repetition) {
      ready.arrive_and_wait();
      if (thread == 0) watch = Stopwatch();
      work(thread);
      ready.arrive_and_wait();
      if (thread == 0) best = std::min(best, watch.seconds());
    }
  };
  std::vector<std::jthread> helpers;
  for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(repeat, thread);
  repeat(0);
  return best;
}

double measure_multiply_adds(const std::string& target, int threads) {
  constexpr int64_t kRounds = 2'000'000;
  const MultiplyAddLoop loop = multiply_add_loop(target);
  std::atomic<float> sink{0};
  const double seconds = best_parallel_time(threads, [&](int) { sink = loop.run(kRounds); });
  return static_cast<double>(kRounds * loop.multiply_adds_per_round) * threads / seconds;
}

double measure_memory(int threads) {
  const auto from = std::make_unique<char[]>(kStreamBytes);
  const auto to = std::make_unique<char[]>(kStreamBytes);
  const size_t share = kStreamBytes / static_cast<size_t>(threads);
  const double seconds = best_parallel_time(threads, [&](int thread) {
    const size_t begin = share * static_cast<size_t>(thread);
    std::memcpy(to.get() + begin, from.get() + begin, share);
  });
  return 2.0 * static_cast<double>(share) * threads / seconds;
}

// A sum that takes every byte in; several chains, so that no addition waits for another.
uint64_t sum_of(const uint64_t* from, size_t count) {
  uint64_t chain[8] = {};
  for (size_t i = 0; i < count; i += 8) {
    for (size_t c = 0; c < 8; ++c) chain[c] += from[i + c];
  }
  return std::accumulate(chain, chain + 8, uint64_t{0});
}

double measure_reads(int threads) {
  const std::vector<uint64_t> from(kStreamBytes / sizeof(uint64_t), 1);
  const size_t share = from.size() / static_cast<size_t>(threads) / 8 * 8;
  std::atomic<uint64_t> sink{0};
  const double seconds = best_parallel_time(
      threads, [&](int thread) { sink = sum_of(from.data() + share * static_cast<size_t>(thread), share); });
  return static_cast<double>(share * sizeof(uint64_t)) * threads / seconds;
}

// The last-level cache behind one CPU. On processors with several, the C library answers with all of a socket's
// together: a pool that no core's cache holds would count as cached.
int64_t last_level_cache_bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t kibibytes = 0;
  char unit = 0;
  if (file >> kibibytes >> unit && unit == 'K') return kibibytes << 10;
  return std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE));
}

}  // namespace

Limits measure_limits(const std::string& target, int threads) {
  return {.multiply_adds_per_s = measure_multiply_adds(target, threads),
          .memory_bytes_per_s = measure_memory(threads),
          .read_bytes_per_s = measure_reads(threads),
          .last_level_cache_bytes = last_level_cache_bytes()};
}

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

}  // namespace leapquant::bench
