// SPDX-License-Identifier: Apache-2.0
//
// Pool: the slots of many sequences, in memory of the library or of the caller. Knows sizes, views and the state of a
// new slot; what happens to a state is a backend's work.
#pragma once

#include <memory>

#include "core/checkpoint_layout.h"
#include "core/status.h"
#include "core/tensor_view.h"
#include "plan/backend.h"

namespace leapquant {

struct PoolSizes {
  int64_t raw_bytes;
  int64_t window_bytes;
  int64_t checkpoint_bytes_per_slot;
  int64_t window_bytes_per_slot;
  int64_t fp32_bytes_per_slot;
};

// Sizes of a pool. The error says so when they don't fit in 64 bits.
Result<PoolSizes> pool_sizes(const Geometry& geometry, Layout layout, int64_t num_slots);

// The largest number of slots that fit in `bytes`.
int64_t slots_in(const Geometry& geometry, Layout layout, int64_t bytes);

// The tensors that own a pool's bytes; those of the other gate are empty (no dtype).
struct PoolStorage {
  TensorView raw;            // fp32 flat
  TensorView window_key;     // bf16 [N, H, L, K]
  TensorView window_update;  // bf16 [N, H, L, V]
  TensorView window_weight;  // fp32 [N, H, L]
  TensorView window_gate;    // fp16 [N, H, L, K], KDA
  TensorView log_decay;      // fp32 [N, H, K], KDA
  TensorView decay;          // fp32 [N, H], GDN
  TensorView fill_count;     // int32 [N, H]
};

// Storage of the right dtypes and shapes whose data pointers are still null.
PoolStorage storage_shapes(const Geometry& geometry, const PoolSizes& sizes, int64_t num_slots, Device device);

// Calls `visit(wire name, member)` for every tensor of one storage, in the order of their declaration.
template <class Storage, class Visit>
void for_each_tensor(Storage& storage, Visit visit) {
  visit("raw", storage.raw);
  visit("kbuf", storage.window_key);
  visit("ubuf", storage.window_update);
  visit("w", storage.window_weight);
  visit("gbuf", storage.window_gate);
  visit("pcum", storage.log_decay);
  visit("p", storage.decay);
  visit("hcnt", storage.fill_count);
}

// Strided views of the checkpoints in `raw`.
struct CheckpointTensors {
  TensorView codes;        // int8 [N, H, V, K]
  TensorView key_scale;    // fp32 [N, H, K]
  TensorView value_scale;  // fp32 [N, H, V]
  TensorView factors;      // fp16 [N, H, R, K + V]
};

class Pool {
 public:
  struct Options {
    Geometry geometry;
    Layout layout = Layout::kCompact;
    int64_t num_slots = 0;
    const PoolStorage* storage = nullptr;  // null: allocate; otherwise validated tensors of the caller
    bool keep_contents = false;
  };

  static Result<std::unique_ptr<Pool>> create(std::shared_ptr<Backend> backend, const Options& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Backend& backend() const { return *backend_; }
  const Geometry& geometry() const { return geometry_; }
  int64_t num_slots() const { return num_slots_; }
  const PoolStorage& storage() const { return storage_; }
  CheckpointTensors checkpoints() const;

  // A flush of the due programs of `indices` [count]; both arrays are on the pool's device.
  FlushPlan flush_plan(const int32_t* indices, int64_t count, const float* start_basis) const;

  // A step of the sequences of `indices`: with a gate rule, tokens and an output that are still to be filled in.
  StepPlan step_plan(const int32_t* indices, int64_t count) const;

  // A reset of the slots `indices`, or a copy into them from `sources`.
  SlotPlan slot_plan(const int32_t* indices, int64_t count, const int32_t* sources = nullptr) const;

  // States for or from the slots `indices`: with dense states, and for an import a start basis and counters, that are
  // still to be filled in.
  StatePlan state_plan(const int32_t* indices, int64_t count) const;

  // Fails when two entries of `indices` name the same slot.
  Status check_indices(const int32_t* indices, int64_t count, void* stream) const;

  // Reads and clears the error word.
  Result<ErrorWord> read_errors(void* stream) const;

 private:
  Pool(std::shared_ptr<Backend> backend, const Options& options);
  Status allocate(const PoolSizes& sizes, bool own_storage);
  CheckpointView checkpoint_view() const;
  WindowView window_view() const;
  PoolSelection selection(const int32_t* indices) const;
  Status initialize();

  std::shared_ptr<Backend> backend_;
  Geometry geometry_;
  PoolLayout layout_;
  int64_t num_slots_;
  PoolStorage storage_;
  void* memory_ = nullptr;  // the error word, and the storage when the library owns it
  size_t memory_bytes_ = 0;
  ErrorWord* errors_ = nullptr;
};

}  // namespace leapquant
