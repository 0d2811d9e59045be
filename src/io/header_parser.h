// SPDX-License-Identifier: Apache-2.0
//
// The JSON of a safetensors header, read event by event: memory grows with the tensors that were accepted, and the
// first thing that a header may not hold ends the parse.
#pragma once

#include <string_view>

#include "core/status.h"
#include "io/safetensors.h"

namespace leapquant::io {

// Tensors in the header's order, their offsets and sizes unchecked.
Result<SafetensorsHeader> parse_header_json(std::string_view text);

}  // namespace leapquant::io
