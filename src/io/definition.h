// SPDX-License-Identifier: Apache-2.0
//
// Definitions and workloads in the FlashInfer-Bench schema. A definition states one operation for one geometry (axes,
// tensors, a reference in Python that is carried along as text); a workloads file holds one JSON object a line, each
// fixing the open axes of one definition.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/geometry.h"
#include "core/status.h"

namespace leapquant::io {

struct TensorSignature {
  std::string name;
  std::string dtype;               // "int8", "float32", ...
  std::vector<std::string> shape;  // names of axes
};

struct Definition {
  std::string name;
  std::string op_type;
  std::string description;
  std::map<std::string, std::optional<int64_t>> axes;  // no value: an open axis, fixed by a workload
  std::vector<TensorSignature> inputs;
  std::vector<TensorSignature> outputs;
  std::vector<std::string> constraints;
  std::string reference;
};

Result<Definition> parse_definition(std::string_view text);
Result<Definition> load_definition(const std::string& path);

// The geometry of a definition of the flush. Its op_type names the gate (leapquant_kda_flush, leapquant_gdn_flush); its
// inputs and outputs must be the flush's.
Result<Geometry> definition_geometry(const Definition& definition);

struct Workload {
  std::string definition;
  std::string uuid;
  std::map<std::string, int64_t> axes;
};

Result<std::vector<Workload>> parse_workloads(std::string_view text);
Result<std::vector<Workload>> load_workloads(const std::string& path);

// The batch sizes of the workloads, in their order. Every workload must belong to `definition` and fix batch_size.
Result<std::vector<int64_t>> workload_batches(const std::vector<Workload>& workloads, const Definition& definition);

}  // namespace leapquant::io
