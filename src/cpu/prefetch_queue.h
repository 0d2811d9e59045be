// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace leapquant::cpu {

// Cache lines of the program that comes next, fetched little by little while the current one is computed: by the time
// it starts, they are in the second-level cache.
class PrefetchQueue {
 public:
  static constexpr size_t kLine = 64;

  void clear() { count_ = 0; }
  void add(const void* data, size_t bytes) {
    if (bytes == 0) return;
    range_[count_++] = {static_cast<const char*>(data), static_cast<const char*>(data) + bytes};
  }
  void fetch(size_t lines) {
    for (; lines != 0 && count_ != 0; --lines) {
      Range& last = range_[count_ - 1];
      __builtin_prefetch(last.next, 0, 2);
      last.next += kLine;
      if (last.next >= last.end) --count_;
    }
  }

 private:
  struct Range {
    const char* next;
    const char* end;
  };
  static constexpr size_t kMostRanges = 6;

  Range range_[kMostRanges];
  size_t count_ = 0;
};

}  // namespace leapquant::cpu
