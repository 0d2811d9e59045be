// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>

#include "device_memory.h"

namespace leapquant::conformance {
namespace {

[[noreturn]] void refuse() { throw std::runtime_error("this build has no CUDA backend"); }

}  // namespace

void* allocate_on_device(int32_t /*device*/, size_t /*bytes*/) { refuse(); }
void free_on_device(void* /*memory*/) noexcept {}
void copy_to_device(int32_t /*device*/, void* /*memory*/, const void* /*host*/, size_t /*bytes*/) { refuse(); }
void copy_from_device(int32_t /*device*/, void* /*host*/, const void* /*memory*/, size_t /*bytes*/) { refuse(); }

}  // namespace leapquant::conformance
