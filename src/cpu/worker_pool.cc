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
  explicit Shared(int threads) {
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

  // The life of a helper thread.
  void serve(int worker) {
    uint64_t seen = 0;
    std::unique_lock lock(mutex);
    while (true) {
      started.wait(lock, [&] { return stopping || round != seen; });
      if (stopping) return;
      seen = round;
      lock.unlock();
      take_ranges(worker);
      lock.lock();
      if (--busy == 0) finished.notify_one();
    }
  }

  void take_ranges(int worker) {
    while (true) {
      const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count) return;
      work.call(work.body, worker, begin, std::min(begin + chunk, count));
    }
  }

  std::mutex call;  // one call at a time
  std::mutex mutex;
  std::condition_variable started;
  std::condition_variable finished;
  uint64_t round = 0;
  int busy = 0;
  bool stopping = false;
  Work work{};
  int64_t count = 0;
  int64_t chunk = 1;
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

void WorkerPool::run_erased(int64_t count, int64_t chunk, Work work) {
  restart_after_fork();
  Shared& shared = *shared_;
  const std::lock_guard one_call(shared.call);
  if (threads_ == 1 || count <= chunk) {
    if (count > 0) work.call(work.body, 0, 0, count);
    return;
  }
  {
    const std::lock_guard lock(shared.mutex);
    shared.work = work;
    shared.count = count;
    shared.chunk = chunk;
    shared.next.store(0, std::memory_order_relaxed);
    shared.busy = threads_ - 1;
    ++shared.round;
  }
  shared.started.notify_all();
  shared.take_ranges(0);
  std::unique_lock lock(shared.mutex);
  shared.finished.wait(lock, [&] { return shared.busy == 0; });
}

}  // namespace leapquant::cpu
