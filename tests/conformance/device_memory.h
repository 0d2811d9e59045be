// SPDX-License-Identifier: Apache-2.0
//
// Memory of a CUDA device, for tests. A build without the CUDA backend has no device, and every function throws.
#pragma once

#include <cstddef>
#include <cstdint>

namespace leapquant::conformance {

void* allocate_on_device(int32_t device, size_t bytes);
void free_on_device(void* memory) noexcept;

// Both wait: for the copy, so that work on any stream may follow it, and `copy_from_device` for the device's work
// first.
void copy_to_device(int32_t device, void* memory, const void* host, size_t bytes);
void copy_from_device(int32_t device, void* host, const void* memory, size_t bytes);

}  // namespace leapquant::conformance
