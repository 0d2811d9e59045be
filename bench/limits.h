// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do at most, measured in the run that uses it: multiply-adds from registers, and bytes moved by
// one read and one write stream over memory far larger than the caches.
#pragma once

#include <cstdint>
#include <string>

namespace leapquant::bench {

struct Limits {
  double multiply_adds_per_s = 0;      // fp32, with the vectors of the given instruction set
  double memory_bytes_per_s = 0;       // read and written bytes together
  int64_t last_level_cache_bytes = 0;  // behind one CPU; 0 where there is none or the system does not say
};

// Measures with `threads` threads at once. `target` is an instruction set by the name that the CPU backend gives it;
// another name measures the best one.
Limits measure_limits(const std::string& target, int threads);

// Processor model, as the system names it.
std::string processor_name();

}  // namespace leapquant::bench
