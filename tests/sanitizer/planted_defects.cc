// SPDX-License-Identifier: Apache-2.0
//
// Commits the defect that its argument names: a sanitizer that is alive ends the program with a report.
#include <climits>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void overflow_the_heap() {
  std::vector<char> bytes(16);
  volatile char* end = bytes.data() + bytes.size();
  *end = 1;
}

void overflow_an_integer() {
  volatile int largest = INT_MAX;
  largest = largest + 1;
}

void race_two_threads() {
  int shared = 0;
  const auto count = [&shared] {
    for (int i = 0; i < 1000; ++i) shared = shared + 1;
  };
  std::thread other(count);
  count();
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view defect = argc > 1 ? argv[1] : "";
  if (defect == "address") overflow_the_heap();
  if (defect == "undefined") overflow_an_integer();
  if (defect == "thread") race_two_threads();
  return 0;
}
