// SPDX-License-Identifier: Apache-2.0
#include "cpu/worker_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace leapquant::cpu {
namespace {

TEST(WorkerPool, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 5}) {
    WorkerPool pool(threads);
    for (const int64_t count : {0, 1, 7, 64, 1000}) {
      std::vector<int> seen(static_cast<size_t>(count), 0);
      pool.run(count, [&](int worker, int64_t begin, int64_t end) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, threads);
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(count), 1)) << threads << " " << count;
    }
  }
}

TEST(WorkerPool, ManyShortRuns) {
  WorkerPool pool(3);
  std::atomic<int64_t> total{0};
  for (int run = 0; run < 2000; ++run) {
    pool.run(10, [&](int, int64_t begin, int64_t end) { total += end - begin; });
  }
  EXPECT_EQ(total.load(), 20000);
}

// The sanitizers need address space of their own, and start no threads in a child of fork.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

int64_t sum_of_run(WorkerPool& pool) {
  std::atomic<int64_t> total{0};
  pool.run(10, [&](int, int64_t begin, int64_t end) { total += end - begin; });
  return total.load();
}

// Whether a run throws while the process can map no stack for a thread.
bool run_without_stacks(WorkerPool& pool) {
  std::atomic<bool> done{false};
  const auto wait = [&] {
    while (!done) std::this_thread::yield();
  };
  // These take the stacks that the parent's workers left behind.
  const std::vector<std::jthread> holders = [&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(wait);
    return threads;
  }();
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit none = {1 << 20, before.rlim_max};
  setrlimit(RLIMIT_AS, &none);
  bool refused = false;
  try {
    sum_of_run(pool);
  } catch (const std::system_error&) {
    refused = true;
  }
  setrlimit(RLIMIT_AS, &before);
  done = true;
  return refused;
}

TEST(WorkerPool, AChildThatGetsNoThreadsSaysSoAndTriesAgain) {
  WorkerPool pool(3);
  EXPECT_EQ(sum_of_run(pool), 10);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang ends the child, and so the test
    const bool refused = run_without_stacks(pool);
    _exit(refused && sum_of_run(pool) == 10 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(sum_of_run(pool), 10);
}

#endif

}  // namespace
}  // namespace leapquant::cpu
