// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "verify.h"

namespace leapquant::cli {

Geometry requested_geometry(const VerifyOptions& options) {
  Geometry geometry = options.geometry;
  geometry.gate = options.gate == "gdn" ? Gate::kGdn : Gate::kKda;
  geometry.num_key_heads = options.key_heads == 0 ? geometry.num_heads : options.key_heads;
  return geometry_or(options.definition, geometry);
}

std::vector<std::string> families_or(const VerifyOptions& options, std::vector<std::string> of_the_operation) {
  return options.families.empty() ? std::move(of_the_operation) : options.families;
}

int64_t seeds_of(const VerifyOptions& options, int64_t per_seed) {
  return std::max<int64_t>(1, (options.programs + per_seed - 1) / per_seed);
}

// The threads of the judge are free; those of a backend are its own limit, and the reference has one.
Context make_context(const VerifyOptions& options) {
  return Context(options.backend, options.backend == "ref" ? 0 : options.threads);
}

}  // namespace leapquant::cli
