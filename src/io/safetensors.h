// SPDX-License-Identifier: Apache-2.0
//
// The safetensors format: an 8-byte little-endian header length, a JSON header, then the tensors' bytes without gaps.
//
// The reader trusts nothing that a header claims: every size is checked against the file before memory is taken for it,
// and the tensors must tile the data exactly. The format lets a tensor lie at any offset, so the reader copies a tensor
// into aligned memory rather than pointing into the file; the writer keeps every tensor aligned to its element.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/tensor_view.h"
#include "io/input_file.h"

namespace leapquant::io {

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr size_t kHeaderPrefixBytes = 8;

using Metadata = std::map<std::string, std::string>;

struct TensorEntry {
  std::string name;
  std::string dtype_text;      // as the file spells it, such as "BF16"
  DType dtype = DType::kNone;  // kNone: the file may hold it, but the library has no such type
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // in bytes from the start of the tensor data
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // by offset
  Metadata metadata;

  const TensorEntry* find(std::string_view name) const;
};

// The header length that the first bytes of a file of `file_bytes` bytes claim.
Result<uint64_t> header_length(const std::array<uint8_t, kHeaderPrefixBytes>& prefix, uint64_t file_bytes);

// Parses a header that is followed by `data_bytes` bytes of tensors.
Result<SafetensorsHeader> parse_header(std::string_view text, uint64_t data_bytes);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  // The bytes of one of this file's tensors, aligned for every element type.
  Result<std::vector<std::byte>> read(const TensorEntry& entry) const;

 private:
  SafetensorsFile(InputFile file, SafetensorsHeader header, uint64_t data_offset);

  InputFile file_;
  SafetensorsHeader header_;
  uint64_t data_offset_;
};

// A tensor to be written: row-major bytes that the caller holds.
struct TensorSource {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
};

// Writes a file atomically (see atomic_file.h). Wider elements come first and the header is padded, so that every
// tensor is aligned to its element; tensors of one width are ordered by name.
Status write_safetensors(const std::string& path, std::vector<TensorSource> tensors, const Metadata& metadata);

}  // namespace leapquant::io
