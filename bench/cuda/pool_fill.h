// SPDX-License-Identifier: Apache-2.0
//
// Pools in the memory of a GPU that repeat a few programs, and what is copied there for them.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/cuda/timed_graph.h"
#include "device/memory.h"
#include "judge/tensors.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::bench {

inline constexpr int64_t kDistinctItems = kSets;  // a pool repeats the programs of this many sequences

template <class T>
device::CudaMemory uploaded(int32_t device, const std::vector<T>& values) {
  device::CudaMemory memory(device, values.size() * sizeof(T));
  memory.upload(values.data());
  return memory;
}

// The bytes of `distinct` items one after another, repeated to make up `items`: they go up, and then what is filled
// is copied behind itself.
void fill_items(void* target, const void* host, size_t item_bytes, size_t distinct, size_t items);

// Fills the slots of a pool from slot 1 on with kDistinctItems items in turn. Counters are left alone.
void fill_slots(const Pool& pool, lq_layout layout, const judge::CheckpointTensors& checkpoint,
                const judge::WindowTensors& window);

}  // namespace leapquant::bench
