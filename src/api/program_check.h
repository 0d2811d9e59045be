// SPDX-License-Identifier: Apache-2.0
//
// Checks of the groups of tensors that calls have in common: checkpoints, windows, results.
#pragma once

#include <cstdint>
#include <span>

#include "api/tensor_check.h"
#include "core/program_view.h"

namespace leapquant::api {

template <class T>
Strided<T> strided(const TensorView& tensor) {
  return {static_cast<T*>(tensor.data), tensor.strides[0], tensor.strides[1]};
}

// Checkpoints of [batch, H] programs. Inputs may be strided over batch and head, and factors over the rank; results
// are contiguous.
CheckpointView check_checkpoint(Checker& checker, const lq_checkpoint& checkpoint, const Geometry& geometry,
                                int64_t batch, bool strided_allowed);

WindowView check_window(Checker& checker, const lq_window& window, const Geometry& geometry, int64_t batch);

// The batch of a functional call.
Result<int64_t> batch_of(const lq_tensor& codes);

// Numbers of entries [batch, H] are 0 to L - 1; `expectation` is a format that the latter is
// put into. Only host memory can be
// looked at: a device's own kernel reports what it meets.
Status check_entry_counts(const char* name, const char* expectation, Strided<const int32_t> counts, int64_t batch,
                          const Geometry& geometry, const Device& device);

// Results overlap neither inputs nor one another.
Status check_results(std::span<const Named> inputs, std::span<const Named> results);

}  // namespace leapquant::api
