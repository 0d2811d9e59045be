// SPDX-License-Identifier: Apache-2.0
//
// InputFile: a regular file opened for reading. Reads by position into the caller's memory rather than mapping the
// file, so that a file that shrinks under the reader is an error and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/status.h"

namespace leapquant::io {

class InputFile {
 public:
  // Refuses what cannot be opened, and anything but a regular file.
  static Result<InputFile> open(const std::string& path);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }

  // Fills `target` with the bytes at `offset`; fewer than that is an error.
  Status read_at(uint64_t offset, void* target, size_t bytes) const;

 private:
  InputFile(std::string path, int descriptor, uint64_t size);

  std::string path_;
  int descriptor_;
  uint64_t size_;
};

// The whole of a text file, refused when it is larger than `limit`.
Result<std::string> read_text(const std::string& path, uint64_t limit);

// The same failure, with the file's name in front of the text.
Status in_file(const std::string& path, const Status& status);

}  // namespace leapquant::io
