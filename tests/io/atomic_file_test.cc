// SPDX-License-Identifier: Apache-2.0
//
// A save under every fault: whatever fails and whenever the process dies, the name leads to the old file or to the new
// one, whole, and an error leaves no temporary file.
#include "io/atomic_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "syscall_faults.h"
#include "temp_dir.h"

namespace leapquant::io {
namespace {

const std::string kOld(5000, 'o');
const std::string kNew(9000, 'n');
constexpr int kMoreCallsThanASave = 100;

Status save(const std::string& path, const std::string& text = kNew) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  const std::array pieces = {bytes.first(text.size() / 3), bytes.subspan(text.size() / 3)};
  return write_file_atomically(path, pieces);
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_mode & 07777;
}

// Runs `body` in a child process and returns its wait status.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status;
}

TEST(AtomicFile, CreatesAndReplaces) {
  const TempDir dir;
  ASSERT_TRUE(save(dir.file("x"), kOld).ok());
  EXPECT_EQ(read_bytes(dir.file("x")), kOld);
  ASSERT_TRUE(save(dir.file("x")).ok());
  EXPECT_EQ(read_bytes(dir.file("x")), kNew);
  EXPECT_EQ(dir.entries(), 1);
}

TEST(AtomicFile, KeepsPermissions) {
  const TempDir dir;
  const mode_t before = umask(027);
  ASSERT_TRUE(save(dir.file("x")).ok());
  umask(before);
  EXPECT_EQ(mode_of(dir.file("x")), 0640u);
  ASSERT_EQ(chmod(dir.file("x").c_str(), 0604), 0);
  ASSERT_TRUE(save(dir.file("x")).ok());
  EXPECT_EQ(mode_of(dir.file("x")), 0604u);
}

TEST(AtomicFile, WritesThroughLinks) {
  const TempDir dir;
  std::filesystem::create_directory(dir.file("sub"));
  std::filesystem::create_symlink("sub/target", dir.file("link"));
  std::filesystem::create_symlink(dir.file("link"), dir.file("second"));
  for (const std::string& text : {kOld, kNew}) {  // first the link's end is missing, then it is there
    ASSERT_TRUE(save(dir.file("second"), text).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(dir.file("second")));
    EXPECT_TRUE(std::filesystem::is_symlink(dir.file("link")));
    EXPECT_EQ(read_bytes(dir.file("sub/target")), text);
  }
  std::filesystem::create_symlink("loop", dir.file("loop"));
  expect_refusal(save(dir.file("loop")), {"loop", "link"});
}

TEST(AtomicFile, RefusesWhatIsNoFile) {
  const TempDir dir;
  expect_refusal(save(dir.file(".")), {"regular file", "directory"});
  expect_refusal(save("/dev/full"), {"regular file", "device"});
  expect_refusal(save(dir.file("missing/x")), {"No such file"});
  EXPECT_EQ(dir.entries(), 0);
}

TEST(AtomicFile, WorksInTheCurrentDirectory) {
  const TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.file("."));
  const Status status = save("x");
  std::filesystem::current_path(before);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read_bytes(dir.file("x")), kNew);
}

TEST(AtomicFile, RefusesAnUnwritableDirectory) {
  const TempDir dir;
  const std::string path = dir.write("x", kOld);
  ASSERT_EQ(chmod(dir.file(".").c_str(), 0555), 0);
  const int status = in_child([&] {
    constexpr uid_t kNobody = 65534;  // root may write anywhere
    if (geteuid() == 0 && setuid(kNobody) != 0) return 2;
    return save(path).message().find("Permission denied") == std::string::npos ? 1 : 0;
  });
  ASSERT_EQ(chmod(dir.file(".").c_str(), 0700), 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_bytes(path), kOld);
}

TEST(AtomicFile, ContinuesShortWrites) {
  const TempDir dir;
  limit_writes(7);
  const Status status = save(dir.file("x"));
  disarm_faults();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(read_bytes(dir.file("x")), kNew);
}

// The kernel's own refusal: a limit on the file size stops the write in the middle.
TEST(AtomicFile, SurvivesAFileSizeLimit) {
  const TempDir dir;
  const std::string path = dir.write("x", kOld);
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {kNew.size() / 2, kNew.size() / 2};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    return save(path).ok() ? 1 : 0;
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_bytes(path), kOld);
  EXPECT_EQ(dir.entries(), 1);
}

// Fails every system call of a save in turn.
TEST(AtomicFile, SurvivesAnErrorAtEveryCall) {
  for (const int error : {ENOSPC, EIO}) {
    int struck = 0;
    for (int n = 0; n < kMoreCallsThanASave; ++n) {
      const TempDir dir;
      const std::string path = dir.write("x", kOld);
      arm_fault(Fault::kError, n, error);
      const Status status = save(path);
      const bool reached = fault_struck();
      disarm_faults();
      if (!reached) break;
      ++struck;
      SCOPED_TRACE("call " + std::to_string(n) + ": " + status.message());
      const std::string now = read_bytes(path);
      EXPECT_TRUE(now == kOld || now == kNew);
      EXPECT_EQ(dir.entries(), 1);
      EXPECT_TRUE(!status.ok() || now == kNew);
    }
    // open, two writes, fchmod, fsync, close, rename; then open, fsync and close of the directory
    EXPECT_EQ(struck, 10);
  }
}

TEST(AtomicFile, RetriesInterruptedCalls) {
  const TempDir dir;
  for (int n = 0; n < 3; ++n) {  // the open and the two writes
    arm_fault(Fault::kError, n, EINTR);
    const Status status = save(dir.file("x"));
    disarm_faults();
    EXPECT_TRUE(status.ok()) << n << ": " << status.message();
    EXPECT_EQ(read_bytes(dir.file("x")), kNew);
  }
}

// Kills the process before and after every system call of a save; a write may be half done.
TEST(AtomicFile, SurvivesAKillAtEveryCall) {
  for (const Fault fault : {Fault::kKillBefore, Fault::kKillAfter}) {
    int killed = 0;
    for (int n = 0; n < kMoreCallsThanASave; ++n) {
      const TempDir dir;
      const std::string path = dir.write("x", kOld);
      const int status = in_child([&] {
        limit_writes(3000);
        arm_fault(fault, n, 0);
        return save(path).ok() ? 0 : 1;
      });
      const std::string now = read_bytes(path);
      EXPECT_TRUE(now == kOld || now == kNew) << "call " << n;
      if (!WIFSIGNALED(status)) break;
      EXPECT_EQ(WTERMSIG(status), SIGKILL);
      ++killed;
      // What the dead process left does not stand in the way of the next save.
      EXPECT_TRUE(save(path).ok());
      EXPECT_EQ(read_bytes(path), kNew);
    }
    EXPECT_EQ(killed, 11);  // the 3000-byte limit makes three writes of two
  }
}

}  // namespace
}  // namespace leapquant::io
