// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 (FIPS 180-4), to name results by.
#pragma once

#include <span>
#include <string>

namespace leapquant::cuda_test {

// In hexadecimal.
std::string sha256(std::span<const unsigned char> bytes);

}  // namespace leapquant::cuda_test
