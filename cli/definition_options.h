// SPDX-License-Identifier: Apache-2.0
//
// --definition and --workloads, which several commands take: a definition fixes the geometry, its workloads the batch
// sizes. What cannot be used ends the program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "io/definition.h"

namespace leapquant::cli {

struct DefinitionOptions {
  std::string definition;
  std::string workloads;
};

// Adds both options. They exclude `geometry_options` and `batch`, which say the same things one by one.
void add_definition_options(CLI::App& command, DefinitionOptions& options,
                            const std::vector<CLI::Option*>& geometry_options, CLI::Option* batch);

// The geometry of the definition, or `otherwise` when none was named.
Geometry geometry_or(const DefinitionOptions& options, const Geometry& otherwise);

// The batch sizes of the workloads, or `otherwise` when none were named.
std::vector<int64_t> batches_or(const DefinitionOptions& options, const std::vector<int64_t>& otherwise);

}  // namespace leapquant::cli
