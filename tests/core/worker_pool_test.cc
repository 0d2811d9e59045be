// SPDX-License-Identifier: Apache-2.0
#include "cpu/worker_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace leapquant::cpu {
namespace {

TEST(WorkerPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (const int64_t count : {0, 1, 7, 64, 1000}) {
      for (const int64_t chunk : {1, 3, 64, 5000}) {
        std::vector<int> seen(static_cast<size_t>(count), 0);
        pool.run(count, chunk, [&](int worker, int64_t begin, int64_t end) {
          EXPECT_GE(worker, 0);
          EXPECT_LT(worker, threads);
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(count), 1)) << threads << " " << count << " " << chunk;
      }
    }
  }
}

TEST(WorkerPool, ManyShortRuns) {
  WorkerPool pool(3);
  std::atomic<int64_t> total{0};
  for (int run = 0; run < 2000; ++run) {
    pool.run(10, 1, [&](int, int64_t begin, int64_t end) { total += end - begin; });
  }
  EXPECT_EQ(total.load(), 20000);
}

}  // namespace
}  // namespace leapquant::cpu
