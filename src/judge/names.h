// SPDX-License-Identifier: Apache-2.0
//
// Values that a caller names in words.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "core/status.h"

namespace leapquant::judge {

// The value whose name this is; `what` is meant stands in the text of a refusal.
template <class Value, size_t kCount>
Result<Value> parse_name(const char* what, std::string_view name, const std::array<Value, kCount>& values,
                         const std::array<const char*, kCount>& names) {
  std::string known;
  for (size_t i = 0; i < kCount; ++i) {
    if (name == names[i]) return values[i];
    known += (known.empty() ? "" : ", ") + std::string(names[i]);
  }
  return invalid_argument(std::string(what) + ": no '" + std::string(name) + "'; there are: " + known);
}

}  // namespace leapquant::judge
