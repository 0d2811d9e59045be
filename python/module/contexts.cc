// SPDX-License-Identifier: Apache-2.0
#include "contexts.h"

#include <tvm/ffi/error.h>

#include <map>
#include <mutex>
#include <utility>

#include "convert.h"

namespace leapquant::python {
namespace {

// Backends are listed preferred first.
const char* backend_for(lq_device_type device) {
  for (int32_t i = 0; i < lq_backend_count(); ++i) {
    lq_backend_info info{};
    check(lq_backend_describe(i, &info));
    if (info.device == device) return info.name;
  }
  throw tvm::ffi::Error("RuntimeError", "this build of leapquant has no CUDA backend: build it where nvcc is found",
                        "");
}

lq_context* create(const lq_device& device) {
  lq_context_options options{};
  options.backend = backend_for(device.type);
  options.device = device.index;
  lq_context* context = nullptr;
  check(lq_context_create(&options, &context));
  return context;
}

}  // namespace

lq_context* context_for(const lq_device& device) {
  static std::mutex mutex;
  // Never destroyed: its threads must outlive whatever Python still runs while the process ends.
  static auto* const contexts = new std::map<std::pair<int, int32_t>, lq_context*>();
  const std::lock_guard lock(mutex);
  lq_context*& context = (*contexts)[{device.type, device.index}];
  if (context == nullptr) context = create(device);
  return context;
}

}  // namespace leapquant::python
