// SPDX-License-Identifier: Apache-2.0
//
// safetensors files put together by hand, right or wrong.
#pragma once

#include <cstdint>
#include <string>

namespace leapquant::io {

inline std::string length_prefix(uint64_t length) {
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix += static_cast<char>(length >> (8 * i));
  return prefix;
}

inline std::string raw_file(const std::string& header, const std::string& data = "") {
  return length_prefix(header.size()) + header + data;
}

// One member of a header.
inline std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, uint64_t begin,
                         uint64_t end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace leapquant::io
