// SPDX-License-Identifier: Apache-2.0
//
// Runs the built program as a user would, and keeps what it said.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "temp_dir.h"

namespace leapquant::cli {

constexpr const char* kDefinition = LQ_DATA_DIR "/definitions/leapquant_kda_flush_r4_int8_h32_v128_k128.json";

struct Outcome {
  int code;  // exit code; -1 when a signal ended the program
  std::string out;
  std::string err;
};

struct RunOptions {
  std::string stdout_path = {};  // empty: captured
  rlim_t file_size_limit = 0;    // bytes; 0 is none
};

inline void redirect(int descriptor, const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(126);
}

inline Outcome run_program(std::vector<std::string> arguments, const RunOptions& options = {}) {
  const io::TempDir dir;
  const std::string out = options.stdout_path.empty() ? dir.file("out") : options.stdout_path;
  arguments.insert(arguments.begin(), LQ_PROGRAM);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    redirect(STDOUT_FILENO, out);
    redirect(STDERR_FILENO, dir.file("err"));
    const rlimit limit = {options.file_size_limit, options.file_size_limit};
    if (options.file_size_limit > 0 && setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, options.stdout_path.empty() ? io::read_bytes(out) : "",
          io::read_bytes(dir.file("err"))};
}

// Expects an exit code and, on stderr, one "leapquant: error: " that holds every one of `parts`.
inline void expect_failure(const Outcome& outcome, int code, std::initializer_list<const char*> parts) {
  EXPECT_EQ(outcome.code, code) << outcome.err;
  EXPECT_EQ(outcome.err.rfind("leapquant: error: ", 0), 0u) << outcome.err;
  for (const char* part : parts) EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

inline void expect_success(const Outcome& outcome, std::initializer_list<const char*> parts) {
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  for (const char* part : parts) EXPECT_NE(outcome.out.find(part), std::string::npos) << outcome.out;
}

}  // namespace leapquant::cli
