// SPDX-License-Identifier: Apache-2.0
//
// WorkerPool: a fixed number of threads that share out the index range of one call at a time. The calling thread works
// too. Which worker takes which index is left to chance, so a result must not depend on it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace leapquant::cpu {

class WorkerPool {
 public:
  // `threads` >= 1, the calling thread included. Throws std::system_error when the system has no more threads.
  explicit WorkerPool(int threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(worker, begin, end) until [0, count) is covered by ranges; worker is in [0, threads()). Returns when all
  // is done. Calls from several threads run one after another. A child process of fork() has no workers: they are
  // started again on its first call, which throws std::system_error when it gets none.
  template <class Body>
  void run(int64_t count, const Body& body) {
    run_erased(count, {&body, [](const void* target, int worker, int64_t begin, int64_t end) {
                         (*static_cast<const Body*>(target))(worker, begin, end);
                       }});
  }

 private:
  struct Work {
    const void* body;
    void (*call)(const void* body, int worker, int64_t begin, int64_t end);
  };
  struct Shared;

  void run_erased(int64_t count, Work work);
  void restart_after_fork();
  void replace_workers(pid_t before);

  int threads_;
  std::unique_ptr<Shared> shared_;
  std::atomic<pid_t> process_;  // the process whose threads these are; negative while it starts them anew
};

}  // namespace leapquant::cpu
