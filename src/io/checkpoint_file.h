// SPDX-License-Identifier: Apache-2.0
//
// Files of the functional flush: its inputs, one tensor per wire name, and the checkpoints that it returns. A file is
// held to the format: shapes that agree with one another (and with an expected geometry, when there is one), metadata
// that agrees with the shapes, and values inside their domains.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/geometry.h"
#include "io/safetensors.h"
#include "io/tensor_schema.h"

namespace leapquant::io {

inline constexpr const char* kFormatName = "leapquant";
inline constexpr const char* kFormatVersion = "1";

// The geometry that a file must have, and who says so ("the definition"), for the error's text.
struct ExpectedGeometry {
  Geometry geometry;
  std::string source;
};

struct LoadedTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  template <class T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data.data()), data.size() / sizeof(T)};
  }
};

// Tensors of B x H programs. `geometry.num_key_heads` equals num_heads unless the metadata says otherwise: a flush does
// not depend on it.
struct ProgramFile {
  Geometry geometry;
  int64_t batch = 0;
  std::vector<LoadedTensor> tensors;

  LoadedTensor& at(std::string_view name);
  const LoadedTensor& at(std::string_view name) const;
};

// Every input of a flush, values checked. Missing and unknown tensors are refused.
Result<ProgramFile> load_flush_inputs(const std::string& path, const std::optional<ExpectedGeometry>& expected = {});

// The five checkpoint tensors of a file that may hold others, values unchecked (see check_values). The gate and the
// window come from the metadata, or are the defaults.
Result<ProgramFile> load_checkpoint(const SafetensorsFile& file);

// Whether every value lies in its tensor's domain; the text names the tensor and the first place.
Status check_values(const ProgramFile& file);

// Writes the checkpoint tensors of `file` with the metadata that load_* verify. Atomic.
Status save_checkpoint(const std::string& path, const ProgramFile& file);

// The metadata of a file of that geometry.
Metadata format_metadata(const Geometry& geometry);

}  // namespace leapquant::io
