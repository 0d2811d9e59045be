// SPDX-License-Identifier: Apache-2.0
//
// The sticky error word of a pool. It lives where the pool's memory lives; host and device code include this.
#pragma once

#include <cstdint>
#include <limits>

namespace leapquant {

enum class ErrorKind : int32_t { kIndex = 0, kNonFinite = 1, kUnflushed = 2, kCounter = 3 };
inline constexpr int kErrorKindCount = 4;
inline constexpr int32_t kNoPosition = std::numeric_limits<int32_t>::max();

// The smallest batch position at which each kind was met, so that the record is the same however threads interleave.
struct ErrorWord {
  int32_t first_position[kErrorKindCount] = {kNoPosition, kNoPosition, kNoPosition, kNoPosition};
};

}  // namespace leapquant
