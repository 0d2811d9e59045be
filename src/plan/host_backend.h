// SPDX-License-Identifier: Apache-2.0
//
// What the backends that work on host memory share: that memory, and the selection of due programs.
#pragma once

#include <optional>

#include "plan/backend.h"

namespace leapquant {

class HostBackend : public Backend {
 public:
  // Zeroed pages that the system hands out as they are touched. Refuses more than the machine has.
  Result<void*> allocate(size_t bytes) override;
  void release(void* memory, size_t bytes) override;
  Status fill16(void* memory, uint16_t pattern, size_t count) override;
  Status fill32(void* memory, uint32_t pattern, size_t count) override;
  Status copy_to_host(void* host, const void* device, size_t bytes, void* stream) override;
  Status copy_from_host(void* device, const void* host, size_t bytes, void* stream) override;

  Status flush_now(const FlushPlan& plan, void* stream) override { return flush(plan, stream); }
  Status reset_slots(const SlotPlan& plan, void* stream) override;
  Status copy_slots(const SlotPlan& plan, void* stream) override;
};

// A program that a plan works on: its place in the batch, and its item (slot, or batch index) and head in the views.
struct DueProgram {
  int64_t position;
  int64_t item;
  int64_t head;
};

// Program `n` in [0, plan.programs()) of a plan, or nothing when it is not due. An index beyond the pool is recorded.
std::optional<DueProgram> due_program(const FlushPlan& plan, int64_t n);

// After the checkpoint: the window, the counter, and whether the state was finite.
void finish_flush(const FlushPlan& plan, const DueProgram& program, bool finite);

// What marks a window as empty after a flush: weights 0, gates 1, log-decay 0 (GDN: weights 0, decay 1).
void reset_window(const Geometry& geometry, const WindowProgram& window);

// An empty window that keeps nothing of what was there: rows of zeros, and what a flush leaves.
void clear_window(const Geometry& geometry, const WindowProgram& window);

// Records an error at a batch position: the smallest one wins. Safe from several threads.
void record_error(ErrorWord& word, ErrorKind kind, int64_t position);

}  // namespace leapquant
