// SPDX-License-Identifier: Apache-2.0
//
// The subcommands of the program. Each file registers its own options and its callback; main.cc knows only this list.
#pragma once

#include <CLI/CLI.hpp>

namespace leapquant::cli {

// Exit codes, documented in --help.
inline constexpr int kExitOk = 0;
inline constexpr int kExitOverBound = 1;  // verify, report: a program is over the accuracy bound
inline constexpr int kExitUsage = 2;      // wrong options, unreadable or wrong input
inline constexpr int kExitFailure = 3;    // the work itself failed: out of memory, no space, internal error

// Thrown by a callback that has said all it has to say and wants the program to end with `code`.
struct Exit {
  int code;
};

void register_info(CLI::App& app);
void register_verify(CLI::App& app);
void register_bench(CLI::App& app);
void register_report(CLI::App& app);
void register_drift(CLI::App& app);
void register_flush(CLI::App& app);
void register_inspect(CLI::App& app);

}  // namespace leapquant::cli
