// SPDX-License-Identifier: Apache-2.0
//
// leapquant: the program. Parses the command line, runs one subcommand, and turns whatever it throws into one line on
// stderr and a documented exit code.
#include <fmt/format.h>
#include <signal.h>

#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "command.h"
#include "failure.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::cli {
namespace {

constexpr const char* kProgramFooter = R"(
Examples:
  leapquant info
  leapquant verify --batch 16,32
  leapquant bench --json bench.json
  leapquant flush inputs.safetensors -o checkpoint.safetensors
  leapquant inspect checkpoint.safetensors

Exit codes:
  0  done
  1  verify, report: a program is over the accuracy bound
  2  wrong options, or an input that is missing, unreadable or wrong
  3  the work failed: out of memory, no space, internal error

Environment:
  LQ_CPU_TARGET  instruction set of the cpu backend; leapquant info lists them)";

// The parser calls a mistyped command a missing one.
std::string what_is_wrong(const CLI::App& app, const CLI::Error& error) {
  const std::vector<std::string> unknown = app.remaining();
  if (!app.get_subcommands().empty() || unknown.empty()) return error.what();
  return fmt::format("there is no command or option '{}'", unknown.front());
}

void set_up(CLI::App& app) {
  app.description("Quantized recurrent states of linear-attention layers: flush, verify, measure, look inside.");
  app.name("leapquant");
  app.footer(kProgramFooter);
  app.set_version_flag("--version", std::string("leapquant ") + lq_version());
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* parsed, const CLI::Error& error) {
    return fmt::format("leapquant: error: {}\nRun 'leapquant --help' or 'leapquant COMMAND --help'.\n",
                       what_is_wrong(*parsed, error));
  });
  register_info(app);
  register_verify(app);
  register_bench(app);
  register_report(app);
  register_drift(app);
  register_flush(app);
  register_inspect(app);
}

// The parser's own codes are many; ours are two: help and version asked for, or wrong options.
int exit_after_parse(const CLI::App& app, const CLI::ParseError& error) {
  return app.exit(error) == 0 ? kExitOk : kExitUsage;
}

// Output that could not be written (a full disk behind a redirection) must not look like success.
int flush_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  print_error("cannot write to the standard output");
  return kExitFailure;
}

int run(int argc, char** argv) {
  CLI::App app;
  try {
    set_up(app);
    app.parse(argc, argv);
    return flush_output(kExitOk);
  } catch (const CLI::ParseError& error) {
    return exit_after_parse(app, error);
  } catch (const Exit& exit) {
    return flush_output(exit.code);
  } catch (const Failure& failure) {
    print_error(failure.what());
    return failure.exit_code();
  } catch (const Error& error) {
    print_error(error.what());
    return exit_code_of(error);
  } catch (const std::bad_alloc&) {
    print_error("out of memory: try a smaller batch");
    return kExitFailure;
  } catch (const std::exception& error) {
    print_error(error.what());
    return kExitFailure;
  }
}

}  // namespace
}  // namespace leapquant::cli

int main(int argc, char** argv) {
  // A write beyond a file size limit is to fail, so that the save cleans up behind it, and not to end the process.
  signal(SIGXFSZ, SIG_IGN);
  try {
    return leapquant::cli::run(argc, argv);
  } catch (...) {  // a failure while another one was being reported
    std::fputs("leapquant: error: the error could not be reported\n", stderr);
    return leapquant::cli::kExitFailure;
  }
}
