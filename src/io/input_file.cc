// SPDX-License-Identifier: Apache-2.0
#include "io/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/text.h"

namespace leapquant::io {

InputFile::InputFile(std::string path, int descriptor, uint64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

Result<InputFile> InputFile::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its other end; it has no effect on regular files.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return in_file(path, io_error(fmt::format("cannot open: {}", std::strerror(errno))));
  InputFile file(path, descriptor, 0);
  struct stat info {};
  if (fstat(descriptor, &info) != 0) {
    return in_file(path, io_error(fmt::format("cannot stat: {}", std::strerror(errno))));
  }
  if (!S_ISREG(info.st_mode)) {
    return in_file(path, io_error(fmt::format("expected a regular file, found a {}",
                                              S_ISDIR(info.st_mode) ? "directory" : "device, pipe or socket")));
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

Status InputFile::read_at(uint64_t offset, void* target, size_t bytes) const {
  auto* next = static_cast<std::byte*>(target);
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = pread(descriptor_, next + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return in_file(path_, io_error(fmt::format("cannot read: {}", std::strerror(errno))));
    if (got == 0) {
      return in_file(
          path_, io_error(fmt::format("expected {} bytes at offset {}, the file ends after {}", bytes, offset, done)));
    }
    done += static_cast<size_t>(got);
  }
  return {};
}

Result<std::string> read_text(const std::string& path, uint64_t limit) {
  Result<InputFile> file = InputFile::open(path);
  if (!file.ok()) return file.status();
  const uint64_t size = file.value().size();
  if (size > limit) {
    return in_file(path, invalid_argument(fmt::format("file size: expected at most {} bytes, found {}", limit, size)));
  }
  std::string text(size, '\0');
  LQ_RETURN_IF_ERROR(file.value().read_at(0, text.data(), text.size()));
  return text;
}

Status in_file(const std::string& path, const Status& status) {
  return {status.code(), in_quotes(path) + ": " + status.message()};
}

}  // namespace leapquant::io
