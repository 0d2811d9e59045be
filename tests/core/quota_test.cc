// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

#include "cpu/cpu_quota.h"

namespace leapquant::cpu {
namespace {

// A tree of control group files in a fresh folder.
class QuotaTest : public testing::Test {
 protected:
  QuotaTest() : root_(std::filesystem::temp_directory_path() / ("lq-quota-" + std::to_string(getpid()))) {}
  ~QuotaTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  int quota(const std::string& membership) const { return quota_threads(membership, root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST_F(QuotaTest, NoFilesNoQuota) { EXPECT_EQ(quota("0::/a\n"), 0); }

TEST_F(QuotaTest, Version2) {
  write("a/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota("0::/a\n"), 2);
  write("a/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/a\n"), 0);
}

TEST_F(QuotaTest, Version2TakesTheSmallestOfTheParents) {
  write("a/cpu.max", "300000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/b/c/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota("0::/a/b/c\n"), 3);
}

TEST_F(QuotaTest, AContainersOwnGroupIsMountedAtTheRoot) {
  write("cpu.max", "200000 100000\n");
  EXPECT_EQ(quota("0::/some/path/of/the/host\n"), 2);
}

TEST_F(QuotaTest, PartsOfAThreadAreRoundedDownButNeverToNone) {
  write("a/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota("0::/a\n"), 2);
  write("a/cpu.max", "30000 100000\n");
  EXPECT_EQ(quota("0::/a\n"), 1);
}

TEST_F(QuotaTest, Version1) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("4:memory:/job\n3:cpu,cpuacct:/job\n"), 4);
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota("3:cpu,cpuacct:/job\n"), 0);
}

TEST_F(QuotaTest, NonsenseIsIgnored) {
  write("a/cpu.max", "plenty\n");
  EXPECT_EQ(quota("0::/a\nrubbish\n:\n5:cpu\n"), 0);
}

TEST(AvailableThreads, FollowsTheAffinityMask) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(available_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_LE(available_threads(), CPU_COUNT(&before));
}

}  // namespace
}  // namespace leapquant::cpu
