// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "io/input_file.h"

namespace leapquant::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // the kernel's own limit on a chain of links

Status failed(const char* what, int error) { return io_error(fmt::format("{}: {}", what, std::strerror(error))); }

// Where `path` leads. Unlike realpath it also follows a link whose end does not exist yet.
Result<fs::path> follow_links(fs::path path) {
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code error;
    if (!fs::is_symlink(fs::symlink_status(path, error))) return path;
    const fs::path next = fs::read_symlink(path, error);
    if (error) return failed("cannot follow the link", error.value());
    path = path.parent_path() / next;  // an absolute `next` replaces the whole
  }
  return failed("cannot follow the link", ELOOP);
}

// Permission bits of the file to be replaced, or nothing when there is none.
Result<std::optional<mode_t>> mode_to_keep(const fs::path& target) {
  struct stat info {};
  if (stat(target.c_str(), &info) != 0) {
    if (errno == ENOENT) return std::optional<mode_t>();
    return failed("cannot write", errno);
  }
  if (!S_ISREG(info.st_mode)) {
    return io_error(fmt::format("cannot write: expected a regular file or a new name, found a {}",
                                S_ISDIR(info.st_mode) ? "directory" : "device, pipe or socket"));
  }
  return std::optional<mode_t>(info.st_mode & 07777);
}

// A file of its own name, removed again unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& directory) : directory_(directory) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!name_.empty()) unlink(name_.c_str());
  }

  Status create() {
    // A process killed here earlier may have left a file of the same process id: try the next number.
    for (int number = 0;; ++number) {
      fs::path name = directory_ / fmt::format(".leapquant-{}-{}.tmp", getpid(), number);
      descriptor_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ >= 0) {
        name_ = std::move(name);
        return {};
      }
      if (errno != EEXIST && errno != EINTR) return failed("cannot create a temporary file beside it", errno);
    }
  }

  Status write_all(std::span<const std::byte> data) {
    while (!data.empty()) {
      const ssize_t written = write(descriptor_, data.data(), data.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed("cannot write", errno);
      data = data.subspan(static_cast<size_t>(written));
    }
    return {};
  }

  Status finish(std::optional<mode_t> mode) {
    if (mode.has_value() && fchmod(descriptor_, *mode) != 0) return failed("cannot set the permissions", errno);
    if (fsync(descriptor_) != 0) return failed("cannot write", errno);
    if (close(std::exchange(descriptor_, -1)) != 0) return failed("cannot write", errno);
    return {};
  }

  Status rename_to(const fs::path& target) {
    if (rename(name_.c_str(), target.c_str()) != 0) return failed("cannot rename the temporary file", errno);
    name_.clear();
    return {};
  }

 private:
  fs::path directory_;
  fs::path name_;
  int descriptor_ = -1;
};

// Makes the rename itself durable. File systems that cannot sync a directory say EINVAL: nothing is left to do there.
Status sync_directory(const fs::path& directory) {
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failed("the file is written, but its directory cannot be synced", errno);
  const int error = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  if (error == 0 || error == EINVAL) return {};
  return failed("the file is written, but its directory cannot be synced", error);
}

Status replace(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  const Result<fs::path> target = follow_links(path);
  if (!target.ok()) return target.status();
  const Result<std::optional<mode_t>> mode = mode_to_keep(target.value());
  if (!mode.ok()) return mode.status();
  const fs::path parent = target.value().parent_path();
  const fs::path directory = parent.empty() ? fs::path(".") : parent;
  TemporaryFile temporary(directory);
  LQ_RETURN_IF_ERROR(temporary.create());
  for (const std::span<const std::byte> piece : pieces) LQ_RETURN_IF_ERROR(temporary.write_all(piece));
  LQ_RETURN_IF_ERROR(temporary.finish(mode.value()));
  LQ_RETURN_IF_ERROR(temporary.rename_to(target.value()));
  return sync_directory(directory);
}

}  // namespace

Status write_file_atomically(const std::string& path, std::span<const std::span<const std::byte>> pieces) {
  const Status status = replace(path, pieces);
  return status.ok() ? status : in_file(path, status);
}

}  // namespace leapquant::io
