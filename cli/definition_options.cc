// SPDX-License-Identifier: Apache-2.0
#include "definition_options.h"

#include "failure.h"

namespace leapquant::cli {

void add_definition_options(CLI::App& command, DefinitionOptions& options,
                            const std::vector<CLI::Option*>& geometry_options, CLI::Option* batch) {
  CLI::Option* const definition =
      command.add_option("--definition", options.definition, "Take the geometry from this definition");
  for (CLI::Option* const option : geometry_options) definition->excludes(option);
  command.add_option("--workloads", options.workloads, "Take the batch sizes from these workloads of the definition")
      ->needs(definition)
      ->excludes(batch);
}

Geometry geometry_or(const DefinitionOptions& options, const Geometry& otherwise) {
  if (options.definition.empty()) return otherwise;
  return input_or_fail(io::definition_geometry(input_or_fail(io::load_definition(options.definition))));
}

std::vector<int64_t> batches_or(const DefinitionOptions& options, const std::vector<int64_t>& otherwise) {
  if (options.workloads.empty()) return otherwise;
  return input_or_fail(io::workload_batches(input_or_fail(io::load_workloads(options.workloads)),
                                            input_or_fail(io::load_definition(options.definition))));
}

}  // namespace leapquant::cli
