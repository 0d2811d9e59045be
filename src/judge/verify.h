// SPDX-License-Identifier: Apache-2.0
//
// Verification: one family's inputs, flushed by a context of the library through its public interface, and judged. The
// command line and the tests both call this, so they see identical numbers.
#pragma once

#include "judge/families.h"
#include "judge/judge.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::judge {

// The tensors as the public interface takes them. They view the memory of their argument.
lq_geometry public_geometry(const Geometry& geometry);
lq_checkpoint public_checkpoint(const CheckpointTensors& tensors);
lq_window public_window(const WindowTensors& tensors);
lq_tensor public_start_basis(const FlushInputs& inputs);

// Flushes `inputs` in the functional form. The tensors of the call lie on `place`: those of a context on a GPU have to
// lie there. Throws Error where that memory fails.
Result<CheckpointTensors> flush(const Context& context, const FlushInputs& inputs, lq_device place = kCpuDevice);

// Draws, flushes where the context works, and judges. Every batch size has numbers of its own.
Result<Judgement> verify_flush(const Context& context, const FamilyRequest& request);

}  // namespace leapquant::judge
