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
    if (bytes != 0) range_[count_++] = {static_cast<const char*>(data), (bytes + kLine - 1) / kLine};
  }
  void fetch(size_t lines) {
    while (lines != 0 && count_ != 0) {
      Range& last = range_[count_ - 1];
      const size_t now = lines < last.lines ? lines : last.lines;
      for (size_t i = 0; i < now; ++i) __builtin_prefetch(last.next + i * kLine, 0, 2);
      lines -= now;
      last.lines -= now;
      last.next += now * kLine;
      if (last.lines == 0) --count_;
    }
  }

 private:
  struct Range {
    const char* next;
    size_t lines;
  };
  static constexpr size_t kMostRanges = 6;

  Range range_[kMostRanges];
  size_t count_ = 0;
};

}  // namespace leapquant::cpu
