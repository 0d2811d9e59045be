// SPDX-License-Identifier: Apache-2.0
//
// What this machine can do at most, measured in the run that uses it: multiply-adds from registers, and bytes moved by
// one read and one write stream, and by reading alone, over memory far larger than the caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace leapquant::bench {

struct Limits {
  double multiply_adds_per_s = 0;      // fp32, with the vectors of the given instruction set
  double memory_bytes_per_s = 0;       // read and written bytes together
  double read_bytes_per_s = 0;         // bytes read alone
  int64_t last_level_cache_bytes = 0;  // behind one CPU; 0 where there is none or the system does not say
};

// A read and a write stream of some bytes on a GPU, made in two ways: microseconds.
struct StreamTiming {
  double kernel_us = 0;  // a kernel that copies
  double memcpy_us = 0;  // the driver's own copy

  double us() const { return std::min(kernel_us, memcpy_us); }
};

struct GpuDescription {
  std::string name;
  std::string driver;        // "unknown" where the system hides it
  std::string driver_cuda;   // newest CUDA that the driver takes
  std::string cuda_runtime;  // CUDA that the program is built with
  int multiprocessors = 0;
  int sm_clock_mhz = 0;  // the peaks that the driver states, as the next one
  int memory_clock_mhz = 0;
  int64_t l2_cache_bytes = 0;
};

// Measures with `threads` threads at once. `target` is an instruction set by the name that the CPU backend gives it;
// another name measures the best one.
Limits measure_limits(const std::string& target, int threads);

// Processor model, as the system names it.
std::string processor_name();

}  // namespace leapquant::bench
