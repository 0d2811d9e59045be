// SPDX-License-Identifier: Apache-2.0
//
// Moving programs between a batch of tensors and the slots of a pool in host memory.
#pragma once

#include <cstdint>
#include <span>

#include "judge/tensors.h"
#include "leapquant/leapquant.h"

namespace leapquant::judge {

// Writes checkpoint and window of batch item `item` into slot `slot`. Counters are left alone.
void write_slot(const lq_pool_tensors& pool, int64_t slot, const CheckpointTensors& checkpoint,
                const WindowTensors& window, int64_t item);
inline void write_slot(const lq_pool_tensors& pool, int64_t slot, const FlushInputs& inputs, int64_t item) {
  write_slot(pool, slot, inputs.checkpoint, inputs.window, item);
}

// One program's window in a pool.
WindowProgram slot_window(const lq_pool_tensors& pool, int64_t slot, int64_t head);

// Sets the counters of all heads of a slot.
void set_counters(const lq_pool_tensors& pool, int64_t slot, int32_t count);

// The checkpoints of `slots`, one batch item each.
CheckpointTensors read_slots(const lq_pool_tensors& pool, const Geometry& geometry, std::span<const int32_t> slots);

}  // namespace leapquant::judge
