// SPDX-License-Identifier: Apache-2.0
//
// Checks on text that comes from outside, before any parser sees it, and a safe way to quote it in an error.
#pragma once

#include <string>
#include <string_view>

#include "core/status.h"

namespace leapquant::io {

// "'name'": control characters and anything that is not UTF-8 escaped, long text cut, so that a hostile name can
// neither move the terminal's cursor nor fill the screen.
std::string in_quotes(std::string_view text);

// "field: expected ..., found ...": the form of every refusal of a file's contents.
Status field_error(const std::string& field, const std::string& expected, const std::string& found);

// Refuses text that is not UTF-8, naming the byte and its place.
Status check_utf8(std::string_view text);

// Refuses JSON text whose brackets nest deeper than `limit`, naming the depth. Text that is not JSON may pass.
Status check_nesting(std::string_view text, int limit);

}  // namespace leapquant::io
