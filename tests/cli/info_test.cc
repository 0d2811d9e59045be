// SPDX-License-Identifier: Apache-2.0
//
// The program's frame (help, version, wrong options) and `leapquant info`.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "program.h"

namespace leapquant::cli {
namespace {

using nlohmann::json;

TEST(Program, HelpDocumentsCommandsAndExitCodes) {
  expect_success(run_program({"--help"}), {"info", "verify", "bench", "flush", "inspect", "Examples:", "Exit codes:"});
  for (const char* command : {"info", "verify", "bench", "report", "drift", "flush", "inspect"}) {
    expect_success(run_program({command, "--help"}), {"leapquant", "Example", command});
  }
  expect_success(run_program({"--version"}), {"leapquant 0."});
}

TEST(Program, WrongOptionsExitWithTwo) {
  expect_failure(run_program({}), 2, {"subcommand is required", "--help"});
  expect_failure(run_program({"fly"}), 2, {"no command or option 'fly'"});
  expect_failure(run_program({"info", "--bad"}), 2, {"--bad"});
  expect_failure(run_program({"flush", "a", "-o", "b", "--threads", "-1"}), 2, {"--threads"});
  expect_failure(run_program({"inspect"}), 2, {"FILE"});
}

TEST(Program, AFullDiskBehindStdoutIsAFailure) {
  expect_failure(run_program({"info"}, {.stdout_path = "/dev/full"}), 3, {"standard output"});
}

TEST(Info, NamesTheBackends) {
  expect_success(run_program({"info"}),
                 {"leapquant 0.", "build ", "backend cpu", "backend ref", "supports", "targets"});
}

TEST(Info, WritesJson) {
  const io::TempDir dir;
  expect_success(run_program({"info", "--json", dir.file("x")}), {});
  const Outcome to_stdout = run_program({"info", "--json", "-"});
  EXPECT_EQ(to_stdout.out, io::read_bytes(dir.file("x")));
  const json info = json::parse(to_stdout.out);
  ASSERT_GE(info["backends"].size(), 2u);
  for (const json& backend : info["backends"]) {
    for (const char* key : {"name", "device_type", "description", "supports", "targets"}) {
      EXPECT_TRUE(backend.contains(key)) << key;
    }
    const auto& targets = backend["targets"];
    if (backend.contains("unavailable")) continue;
    EXPECT_GE(backend["threads"], 1);
    EXPECT_NE(std::find(targets.begin(), targets.end(), backend["target"]), targets.end());
  }
}

TEST(Info, ReportsAnOutputThatCannotBeWritten) {
  expect_failure(run_program({"info", "--json", "/missing/x"}), 3, {"/missing/x", "No such file"});
}

}  // namespace
}  // namespace leapquant::cli
