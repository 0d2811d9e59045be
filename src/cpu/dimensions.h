// SPDX-License-Identifier: Apache-2.0
//
// The sizes that the SIMD bodies are written for.
#pragma once

#include <cstddef>

namespace leapquant::cpu {

inline constexpr size_t kValueDim = 128;
inline constexpr size_t kKeyDim = 128;
inline constexpr size_t kWindow = 16;
inline constexpr size_t kMaxRank = 8;

}  // namespace leapquant::cpu
