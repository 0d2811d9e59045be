// SPDX-License-Identifier: Apache-2.0
//
// The multiply-add loop behind bench/limits.h, compiled once per instruction set.
#pragma once

#include <cstdint>
#include <string>

namespace leapquant::bench {

struct MultiplyAddLoop {
  // Runs `rounds` rounds of independent multiply-adds in registers; returns something that depends on all of them.
  float (*run)(int64_t rounds);
  int64_t multiply_adds_per_round;
};

// The loop for an instruction set by its name; the best one for a name that is not known here.
MultiplyAddLoop multiply_add_loop(const std::string& target);

}  // namespace leapquant::bench
