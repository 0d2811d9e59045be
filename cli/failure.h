// SPDX-License-Identifier: Apache-2.0
//
// How a subcommand ends early: one line on stderr that says what was wrong, and an exit code of command.h.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "io/text.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::cli {

// Thrown, not printed on the spot: a progress bar that is still up clears its line first.
class Failure : public std::runtime_error {
 public:
  Failure(int exit_code, const std::string& text) : std::runtime_error(text), exit_code_(exit_code) {}
  int exit_code() const noexcept { return exit_code_; }

 private:
  int exit_code_;
};

// "leapquant: error: text"
void print_error(std::string_view text);

// The exit code of a failed call of the library.
int exit_code_of(const Error& error);

// Ends the program over an input that cannot be used.
[[noreturn]] void fail_input(const Status& status);

// The value of an input, or the end of the program.
template <class T>
T input_or_fail(Result<T> result) {
  if (!result.ok()) fail_input(result.status());
  return std::move(result.value());
}

// Ends the program when an output could not be written.
void require_output(const Status& status);

}  // namespace leapquant::cli
