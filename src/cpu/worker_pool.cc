// SPDX-License-Identifier: Apache-2.0
#include "cpu/worker_pool.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace leapquant::cpu {
namespace {

constexpr int64_t kLongestRange = 64;
constexpr int kSpins = 2000;  // some tens of microseconds

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Blocks every signal while alive: threads started meanwhile leave the host's signal handlers to the host's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

struct WorkerPool::Shared {
  explicit Shared(int thread_count) : threads(thread_count) {
    const SignalsBlocked blocked;
    helpers.reserve(static_cast<size_t>(threads - 1));
    try {
      for (int worker = 1; worker < threads; ++worker) helpers.emplace_back([this, worker] { serve(worker); });
    } catch (const std::system_error& error) {
      stop();
      throw std::system_error(error.code(), "cannot start " + std::to_string(threads - 1) + " worker threads");
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Shared() { stop(); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
    }
    started.notify_all();
    for (std::thread& helper : helpers) helper.join();
  }

  // The life of a helper thread. One that wakes when the work is done already takes no part: nobody waits for it.
  void serve(int worker) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      started.wait(lock, [&] { return stopping || (open && round != seen); });
      if (stopping) return;
      seen = round;
      active.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      take_ranges(worker);
      lock.lock();
      if (active.fetch_sub(1, std::memory_order_release) == 1) finished.notify_one();
    }
  }

  void open_round(Work new_work, int64_t new_count) {
    const std::lock_guard lock(mutex);
    work = new_work;
    count = new_count;
    next.store(0, std::memory_order_relaxed);
    open = true;
    ++round;
  }

  // Waits for the helpers that took part. They have one range left at most, so that spinning for a while mostly saves
  // the way through the kernel.
  void close_round() {
    {
      const std::lock_guard lock(mutex);
      open = false;
    }
    for (int spin = 0; spin < kSpins; ++spin) {
      if (active.load(std::memory_order_acquire) == 0) return;
      pause_briefly();
    }
    std::unique_lock lock(mutex);
    finished.wait(lock, [&] { return active.load(std::memory_order_acquire) == 0; });
  }

  // Ranges shrink towards the end: long ones run undisturbed, short ones even out the finish. Bounded, since the work
  // may lie in one part of the indices.
  int64_t range_size(int64_t rest) const { return std::clamp<int64_t>(rest / (2 * threads), 1, kLongestRange); }

  void take_ranges(int worker) {
    while (true) {
      int64_t begin = next.load(std::memory_order_relaxed);
      int64_t end = 0;
      do {
        if (begin >= count) return;
        end = begin + range_size(count - begin);
      } while (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed));
      work.call(work.body, worker, begin, end);
    }
  }

  const int threads;
  std::mutex call;  // one call at a time
  std::mutex mutex;
  std::condition_variable started;
  std::condition_variable finished;
  uint64_t round = 0;
  bool open = false;           // helpers may still join the round
  std::atomic<int> active{0};  // helpers that joined; changed under the mutex
  bool stopping = false;
  Work work{};
  int64_t count = 0;
  std::atomic<int64_t> next{0};
  std::vector<std::thread> helpers;  // last: they use all of the above
};

WorkerPool::WorkerPool(int threads)
    : threads_(threads), shared_(std::make_unique<Shared>(threads)), process_(getpid()) {}

WorkerPool::~WorkerPool() {
  // In a child process the threads do not exist and their locks may be held for ever: let go of them.
  if (process_.load() != getpid()) static_cast<void>(shared_.release());
}

// One thread of a new process restarts, and the others wait for it. While it does, process_ is the negative of its own
// process: a child forked in the middle of it then knows that nobody there is at work.
void WorkerPool::restart_after_fork() {
  const pid_t here = getpid();
  pid_t seen = process_.load();
  while (seen != here) {
    if (seen == -here) {
      std::this_thread::yield();
      seen = process_.load();
    } else if (process_.compare_exchange_weak(seen, -here)) {
      replace_workers(seen);
      seen = here;
    }
  }
}

// When the threads cannot be had, all is as before, and the next call tries again.
void WorkerPool::replace_workers(pid_t before) {
  try {
    std::unique_ptr<Shared> fresh = std::make_unique<Shared>(threads_);
    static_cast<void>(shared_.release());
    shared_ = std::move(fresh);
  } catch (...) {
    process_.store(before);
    throw;
  }
  process_.store(getpid());
}

void WorkerPool::run_erased(int64_t count, Work work) {
  restart_after_fork();
  Shared& shared = *shared_;
  const std::lock_guard one_call(shared.call);
  if (threads_ == 1 || count <= 1) {
    if (count > 0) work.call(work.body, 0, 0, count);
    return;
  }
  shared.open_round(work, count);
  shared.started.notify_all();
  shared.take_ranges(0);
  shared.close_round();
}

}  // namespace leapquant::cpu
