// SPDX-License-Identifier: Apache-2.0
//
// Verification: one family's inputs, flushed by a context of the library through its public interface, and judged. The
// command line and the tests both call this, so they see identical numbers.
#pragma once

#include <initializer_list>
#include <vector>

#include "judge/families.h"
#include "judge/judge.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::judge {

// A contiguous [B, H, ...] tensor. Views never say const (see core/program_view.h).
template <class T>
lq_tensor program_tensor(const std::vector<T>& values, lq_dtype dtype, const Geometry& geometry,
                         std::initializer_list<int64_t> program_shape) {
  int64_t program_elements = 1;
  for (const int64_t extent : program_shape) program_elements *= extent;
  const int64_t heads = geometry.num_heads;
  std::vector<int64_t> shape = {static_cast<int64_t>(values.size()) / (heads * program_elements), heads};
  shape.insert(shape.end(), program_shape);
  return lq_tensor_contiguous(const_cast<T*>(values.data()), dtype, kCpuDevice, static_cast<int32_t>(shape.size()),
                              shape.data());
}

// The tensors as the public interface takes them. They view the memory of their argument.
lq_geometry public_geometry(const Geometry& geometry);
Geometry internal_geometry(const lq_geometry& geometry);
lq_checkpoint public_checkpoint(const CheckpointTensors& tensors);
lq_window public_window(const WindowTensors& tensors);
lq_tensor public_start_basis(const FlushInputs& inputs);

// Flushes `inputs` in the functional form. The tensors of the call lie on `place`: those of a context on a GPU have to
// lie there. Throws Error where that memory fails.
Result<CheckpointTensors> flush(const Context& context, const FlushInputs& inputs, lq_device place = kCpuDevice);

// Draws, flushes where the context works, and judges. Every batch size has numbers of its own.
Result<Judgement> verify_flush(const Context& context, const FamilyRequest& request);

}  // namespace leapquant::judge
