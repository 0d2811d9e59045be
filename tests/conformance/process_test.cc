// SPDX-License-Identifier: Apache-2.0
//
// The library as a guest in its host's process: forced instruction sets, threads, fork.
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "backends.h"

namespace leapquant::conformance {
namespace {

using ProcessTest = BackendTest;
using ForkTest = BackendTest;

TEST_P(ProcessTest, TheForcedTargetIsTheOneThatRuns) {
  const Context forced = context();
  const lq_context_info by_option = forced.info();
  EXPECT_EQ(GetParam().name, by_option.backend);
  EXPECT_EQ(GetParam().target, by_option.target);
  if (GetParam().name != "cpu") return;
  ASSERT_EQ(setenv("LQ_CPU_TARGET", GetParam().target.c_str(), 1), 0);
  const Context by_environment("cpu");
  unsetenv("LQ_CPU_TARGET");
  EXPECT_EQ(GetParam().target, by_environment.info().target);
}

TEST_P(ForkTest, AChildGetsTheSameBits) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 4);
  const Context backend = context(2);
  const auto expected = bytes_of(flush_or_die(backend, inputs));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang ends the child, and so the test
    _exit(bytes_of(flush_or_die(backend, inputs)) == expected ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(bytes_of(flush_or_die(backend, inputs)), expected);
}

TEST_P(ProcessTest, OneContextServesSeveralThreads) {
  const judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(4), 2);
  const Context backend = context(2);
  const auto expected = bytes_of(flush_or_die(backend, inputs));
  std::vector<int> equal(4, 0);
  {
    std::vector<std::jthread> callers;
    for (int& result : equal) {
      callers.emplace_back([&] { result = bytes_of(flush_or_die(backend, inputs)) == expected ? 1 : 0; });
    }
  }
  for (const int result : equal) EXPECT_EQ(result, 1);
}

// A container's quota is read in tests/core; the affinity mask stands for it here.
TEST(ContextOptions, ThreadsAreThoseOfTheProcessUnlessSet) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const int32_t chosen = Context("cpu").info().threads;
  const int32_t asked = Context("cpu", 3).info().threads;
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(chosen, 1);
  EXPECT_EQ(asked, 3);
}

TEST(ContextOptions, AreChecked) {
  const auto message = [](const auto& create) -> std::string {
    try {
      create();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), LQ_INVALID_ARGUMENT);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message([] { Context("tpu"); }).find("no backend 'tpu'"), std::string::npos);
  EXPECT_NE(message([] { Context("cpu", -1); }).find("threads"), std::string::npos);
  EXPECT_NE(message([] { Context("cpu", 5000); }).find("threads"), std::string::npos);
  EXPECT_NE(message([] { Context("cpu", 1, "z80"); }).find("target 'z80'"), std::string::npos);
  EXPECT_NE(message([] { Context("cpu", 1, "", 3); }).find("device 0 only, got 3"), std::string::npos);
  EXPECT_NE(message([] { Context("ref", 4); }).find("1 thread"), std::string::npos);
}

TEST(Version, IsTheOneOfTheHeader) {
  EXPECT_EQ(std::string(lq_version()), std::to_string(LQ_VERSION_MAJOR) + "." + std::to_string(LQ_VERSION_MINOR) + "." +
                                           std::to_string(LQ_VERSION_PATCH));
  EXPECT_STREQ(lq_status_name(LQ_OUT_OF_MEMORY), "OUT_OF_MEMORY");
}

INSTANTIATE_TEST_SUITE_P(Backends, ProcessTest, testing::ValuesIn(backends_under_test()), test_name);
LQ_FOR_HOST_BACKENDS(ForkTest);

}  // namespace
}  // namespace leapquant::conformance
