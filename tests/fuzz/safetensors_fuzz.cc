// SPDX-License-Identifier: Apache-2.0
//
// Fuzzes what a safetensors file's first bytes can do: the input is a whole file in memory.
#include <algorithm>
#include <cstdlib>

#include "io/safetensors.h"

namespace {

using namespace leapquant;

// Accepted tensors tile the data; the reader relies on it.
void require_tiling(const io::SafetensorsHeader& header, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const io::TensorEntry& entry : header.tensors) {
    if (entry.begin != covered || entry.end < entry.begin) std::abort();
    covered = entry.end;
  }
  if (covered != data_bytes) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::array<uint8_t, io::kHeaderPrefixBytes> prefix{};
  if (size < prefix.size()) return 0;
  std::copy_n(data, prefix.size(), prefix.begin());
  const Result<uint64_t> length = io::header_length(prefix, size);
  if (!length.ok()) return 0;
  const std::string_view header(reinterpret_cast<const char*>(data) + prefix.size(), length.value());
  const uint64_t data_bytes = size - prefix.size() - length.value();
  const Result<io::SafetensorsHeader> parsed = io::parse_header(header, data_bytes);
  if (parsed.ok()) require_tiling(parsed.value(), data_bytes);
  return 0;
}
