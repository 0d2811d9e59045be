// SPDX-License-Identifier: Apache-2.0
#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace leapquant::cli {
namespace {

constexpr int kBarWidth = 30;
constexpr char kClearLine[] = "\r\033[K";

}  // namespace

Progress::Progress(std::string title) : title_(std::move(title)), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (terminal_) std::fputs(kClearLine, stderr);  // fmt::print throws where stderr fails
}

void Progress::update(double share, const std::string& what) {
  share = std::clamp(share, 0.0, 1.0);
  if (terminal_) {
    const int filled = static_cast<int>(share * kBarWidth);
    fmt::print(stderr, "{}{} [{:#<{}}{:.<{}}] {:3.0f} %  {}", kClearLine, title_, "", filled, "", kBarWidth - filled,
               share * 100, what);
    std::fflush(stderr);
    return;
  }
  const std::string line = fmt::format("{}: {}\n", title_, what);
  if (line != std::exchange(last_line_, line)) fmt::print(stderr, "{}", line);
}

}  // namespace leapquant::cli
