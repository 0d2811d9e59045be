// SPDX-License-Identifier: Apache-2.0
//
// Writing a command's JSON result.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace leapquant::cli {

// Writes `document` to a file, whole or not at all; "-" is stdout. Throws Failure.
void write_json(const std::string& path, const nlohmann::ordered_json& document);

}  // namespace leapquant::cli
