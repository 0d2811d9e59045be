// SPDX-License-Identifier: Apache-2.0
//
// JSON from outside: UTF-8, nesting and doubled keys are checked, and errors are Status values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "core/status.h"

namespace leapquant::io {

inline constexpr int kMaxJsonDepth = 64;

Result<nlohmann::json> parse_json(std::string_view text);

// The parser's own words, without its internal error number.
std::string parse_error_text(const nlohmann::json::exception& error);

}  // namespace leapquant::io
