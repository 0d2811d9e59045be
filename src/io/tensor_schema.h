// SPDX-License-Identifier: Apache-2.0
//
// The tensors of the functional flush by their wire names: type, axes and domain. Files and definitions are both held
// to these tables.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/geometry.h"
#include "core/tensor_view.h"

namespace leapquant::io {

enum class Axis { kBatch, kHeads, kValue, kKey, kWindow, kRank };
inline constexpr int kAxisCount = 6;

// "batch_size", "num_heads", ...: the names that geometries, definitions and error texts share.
const char* axis_name(Axis axis);

// Which values a tensor may hold in a file.
enum class Domain {
  kCode,         // [-127, 127]
  kScale,        // finite, above 0
  kFinite,       // any finite value
  kUnit,         // [0, 1]
  kNonPositive,  // finite, at most 0
};

struct TensorSpec {
  const char* name;
  DType dtype;
  std::vector<Axis> axes;
  Domain domain;
};

// codes, s_k, s_v, u, q: what a flush reads and what it returns.
std::span<const TensorSpec> checkpoint_tensors();

// The checkpoint, then the window of that gate, then q0: every input of a flush, in the order of its definition.
std::span<const TensorSpec> flush_tensors(Gate gate);

// "codes, s_k, ..."
std::string names_of(std::span<const TensorSpec> specs);

// Sizes by axis; 0 where nothing has fixed one yet.
class AxisSizes {
 public:
  AxisSizes() = default;
  // Everything but the batch, which a geometry leaves open.
  explicit AxisSizes(const Geometry& geometry);

  int64_t& operator[](Axis axis) { return sizes_[static_cast<size_t>(axis)]; }
  int64_t operator[](Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }

  // A checked geometry; `unfixed` says what an axis without a size is taken to be.
  Result<Geometry> geometry(Gate gate, const Geometry& unfixed) const;

 private:
  std::array<int64_t, kAxisCount> sizes_{};
};

}  // namespace leapquant::io
