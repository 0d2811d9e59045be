// SPDX-License-Identifier: Apache-2.0
#include "failure.h"

#include <fmt/format.h>

#include <cstdio>

#include "command.h"

namespace leapquant::cli {

void print_error(std::string_view text) {
  std::fflush(stdout);
  fmt::print(stderr, "leapquant: error: {}\n", text);
}

int exit_code_of(const Error& error) {
  const bool usage = error.status() == LQ_INVALID_ARGUMENT || error.status() == LQ_UNSUPPORTED;
  return usage ? kExitUsage : kExitFailure;
}

void fail_input(const Status& status) {
  const Code code = status.code();
  const bool usage = code == Code::kInvalidArgument || code == Code::kUnsupported || code == Code::kIo;
  throw Failure(usage ? kExitUsage : kExitFailure, status.message());
}

void require_output(const Status& status) {
  if (!status.ok()) throw Failure(kExitFailure, status.message());
}

}  // namespace leapquant::cli
