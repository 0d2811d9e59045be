// SPDX-License-Identifier: Apache-2.0
#include "syscall_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace leapquant::io {
namespace {

Fault armed = Fault::kNone;
int calls_left = 0;
int armed_error = 0;
long write_limit = 0;

// Counts a call, and says what is to happen at it.
Fault next_call() {
  if (armed == Fault::kNone || calls_left < 0) return Fault::kNone;
  const Fault now = calls_left == 0 ? armed : Fault::kNone;
  --calls_left;
  if (now == Fault::kKillBefore) raise(SIGKILL);
  if (now == Fault::kError) errno = armed_error;
  return now;
}

template <class Call>
auto with_fault(Call call) -> decltype(call()) {
  const Fault fault = next_call();
  if (fault == Fault::kError) return -1;
  const auto result = call();
  if (fault == Fault::kKillAfter) raise(SIGKILL);
  return result;
}

}  // namespace

void arm_fault(Fault fault, int n, int error) {
  armed = fault;
  calls_left = n;
  armed_error = error;
}

void disarm_faults() {
  armed = Fault::kNone;
  write_limit = 0;
}

bool fault_struck() { return calls_left < 0; }

void limit_writes(long bytes) { write_limit = bytes; }

extern "C" {

int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int descriptor, const void* data, size_t bytes);
int __real_fchmod(int descriptor, mode_t mode);
int __real_fsync(int descriptor);
int __real_close(int descriptor);
int __real_rename(const char* from, const char* to);

int __wrap_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return with_fault([&] { return __real_open(path, flags, mode); });
}

ssize_t __wrap_write(int descriptor, const void* data, size_t bytes) {
  if (write_limit > 0) bytes = std::min(bytes, static_cast<size_t>(write_limit));
  const bool dies = armed == Fault::kKillAfter && calls_left == 0;
  return with_fault([&] { return __real_write(descriptor, data, dies ? bytes / 2 : bytes); });
}

int __wrap_fchmod(int descriptor, mode_t mode) {
  return with_fault([&] { return __real_fchmod(descriptor, mode); });
}

int __wrap_fsync(int descriptor) {
  return with_fault([&] { return __real_fsync(descriptor); });
}

// A close that fails has closed the descriptor all the same, as on Linux.
int __wrap_close(int descriptor) {
  const Fault fault = next_call();
  const int result = __real_close(descriptor);
  if (fault == Fault::kKillAfter) raise(SIGKILL);
  if (fault != Fault::kError) return result;
  errno = armed_error;
  return -1;
}

int __wrap_rename(const char* from, const char* to) {
  return with_fault([&] { return __real_rename(from, to); });
}

}  // extern "C"

}  // namespace leapquant::io
