// SPDX-License-Identifier: Apache-2.0
//
// Fuzzes the text of definitions and workloads: the input is tried as both.
#include <cstdlib>
#include <string_view>

#include "io/definition.h"

using namespace leapquant;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<io::Definition> definition = io::parse_definition(text);
  if (definition.ok()) {
    const Result<Geometry> geometry = io::definition_geometry(definition.value());
    if (geometry.ok() && !check_geometry(geometry.value()).ok()) std::abort();
  }
  const Result<std::vector<io::Workload>> workloads = io::parse_workloads(text);
  if (!workloads.ok()) return 0;
  for (const io::Workload& workload : workloads.value()) {
    for (const auto& [name, value] : workload.axes) {
      if (value < 1) std::abort();
    }
  }
  return 0;
}
