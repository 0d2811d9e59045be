// SPDX-License-Identifier: Apache-2.0
//
// A progress bar on a terminal, plain lines elsewhere. Writes to stderr, so that stdout holds results alone.
#pragma once

#include <string>

namespace leapquant::cli {

class Progress {
 public:
  explicit Progress(std::string title);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `share` of the work is done, in [0, 1]; `what` is in hand.
  void update(double share, const std::string& what);

 private:
  std::string title_;
  bool terminal_;
  std::string last_line_;
};

}  // namespace leapquant::cli
