// SPDX-License-Identifier: Apache-2.0
//
// The instruction sets that the SIMD bodies are compiled for and that this machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace leapquant::cpu {

struct Target {
  std::string name;
  int64_t bit;  // the library's number of it
};

// Usable targets, best first. Never empty.
std::vector<Target> usable_targets();

}  // namespace leapquant::cpu
