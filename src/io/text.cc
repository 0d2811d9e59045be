// SPDX-License-Identifier: Apache-2.0
#include "io/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace leapquant::io {
namespace {

constexpr size_t kQuotedBytes = 80;

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// Length of the UTF-8 sequence that starts at `i`, or 0 when there is none: no overlong forms, no surrogates, nothing
// beyond U+10FFFF.
size_t sequence_length(std::string_view text, size_t i) {
  const uint8_t lead = byte_at(text, i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                        : lead >= 0xE0 && lead <= 0xEF ? 3
                        : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                       : 0;
  if (length == 0 || i + length > text.size()) return 0;
  const uint8_t lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte_at(text, i + 1) < lowest || byte_at(text, i + 1) > highest) return 0;
  for (size_t k = 2; k < length; ++k) {
    if ((byte_at(text, i + k) & 0xC0) != 0x80) return 0;
  }
  return length;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  std::string result = "'";
  for (size_t i = 0; i < text.size();) {
    if (i >= kQuotedBytes) return result + "...'";
    const size_t length = sequence_length(text, i);
    const bool printable = length > 1 || (length == 1 && byte_at(text, i) >= 0x20 && byte_at(text, i) != 0x7F);
    // U+0080 to U+009F are control characters too.
    const bool control = length == 2 && byte_at(text, i) == 0xC2 && byte_at(text, i + 1) < 0xA0;
    const size_t step = std::max<size_t>(length, 1);
    if (printable && !control) {
      result += text.substr(i, step);
    } else {
      for (size_t k = 0; k < step; ++k) result += fmt::format("\\x{:02X}", byte_at(text, i + k));
    }
    i += step;
  }
  return result + "'";
}

Status field_error(const std::string& field, const std::string& expected, const std::string& found) {
  return invalid_argument(fmt::format("{}: expected {}, found {}", field, expected, found));
}

Status check_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t length = sequence_length(text, i);
    if (length == 0) {
      return invalid_argument(
          fmt::format("expected UTF-8 text, found byte 0x{:02X} at offset {}", byte_at(text, i), i));
    }
    i += length;
  }
  return {};
}

Status check_nesting(std::string_view text, int limit) {
  int64_t depth = 0;
  int64_t deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  if (deepest <= limit) return {};
  return invalid_argument(fmt::format("nesting depth: expected at most {} levels, found {}", limit, deepest));
}

}  // namespace leapquant::io
