// SPDX-License-Identifier: Apache-2.0
//
// The list of backends. Each backend's folder defines its entry; nothing else of it is visible here.
#include "plan/backend.h"

namespace leapquant {

namespace cpu {
BackendEntry backend_entry();
}
namespace ref {
BackendEntry backend_entry();
}
#if LQ_WITH_CUDA
namespace cuda {
BackendEntry backend_entry();
}
#endif

const std::vector<BackendEntry>& backend_registry() {
  static const std::vector<BackendEntry> entries = {
    cpu::backend_entry(),
    ref::backend_entry(),
#if LQ_WITH_CUDA
    cuda::backend_entry(),
#endif
  };
  return entries;
}

Result<std::unique_ptr<Backend>> create_backend(const std::string& name, const BackendOptions& options) {
  std::string names;
  for (const BackendEntry& entry : backend_registry()) {
    if (name.empty() || name == entry.name) return entry.create(options);
    names += (names.empty() ? "" : ", ") + std::string(entry.name);
  }
  return invalid_argument("context: no backend '" + name + "' in this build; there are: " + names);
}

}  // namespace leapquant
