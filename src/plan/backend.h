// SPDX-License-Identifier: Apache-2.0
//
// The backend interface: what a backend implements, and how it registers itself.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "core/status.h"
#include "core/tensor_view.h"
#include "plan/draft_plan.h"
#include "plan/flush_plan.h"
#include "plan/slot_plan.h"
#include "plan/state_plan.h"
#include "plan/step_plan.h"

namespace leapquant {

struct BackendOptions {
  int32_t threads = 0;  // 0: as many as the process may use
  int32_t device = 0;
  std::string target;  // empty: the environment's choice, or the best one
};

struct BackendState {
  const char* name;
  std::string target;
  int32_t threads;
  Device device;
};

// A backend with its workers and scratch. Owned by a context and by the pools made from it.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual const BackendState& state() const = 0;
  virtual Status supports(const Geometry& geometry) const = 0;

  // Each runs a validated plan, and allocates nothing.
  virtual Status flush(const FlushPlan& plan, void* stream) = 0;
  virtual Status step(const StepPlan& plan, void* stream) = 0;

  // A flush of windows of any fill (FlushPlan::any_fill).
  virtual Status flush_now(const FlushPlan& plan, void* stream) = 0;

  // Slots get the bytes of a new pool's, or those of other slots.
  virtual Status reset_slots(const SlotPlan& plan, void* stream) = 0;
  virtual Status copy_slots(const SlotPlan& plan, void* stream) = 0;

  // Dense states become checkpoints with an empty window, or are rebuilt from checkpoint and window.
  virtual Status import_state(const StatePlan& plan, void* stream) = 0;
  virtual Status export_state(const StatePlan& plan, void* stream) = 0;

  // Tokens that are stepped ahead without a trace in the pool, and the appending of those that are accepted.
  virtual Status draft(const DraftPlan& plan, void* stream) = 0;
  virtual Status commit(const CommitPlan& plan, void* stream) = 0;

  // Memory on the backend's device. `allocate` gives zeroed bytes, aligned to at least 256.
  virtual Result<void*> allocate(size_t bytes) = 0;
  virtual void release(void* memory, size_t bytes) = 0;
  // Fills `count` 16-bit (32-bit) elements with one pattern.
  virtual Status fill16(void* memory, uint16_t pattern, size_t count) = 0;
  virtual Status fill32(void* memory, uint32_t pattern, size_t count) = 0;
  // Copies between device and host memory and waits for it.
  virtual Status copy_to_host(void* host, const void* device, size_t bytes, void* stream) = 0;
  virtual Status copy_from_host(void* device, const void* host, size_t bytes, void* stream) = 0;
};

// What the registry knows of a backend before one is created.
struct BackendEntry {
  const char* name;
  DeviceType device;
  const char* description;
  const char* supports;
  const char* (*targets)();  // usable on this machine, best first, comma separated; static storage
  Result<std::unique_ptr<Backend>> (*create)(const BackendOptions& options);
};

// The backends of this build: those on host memory first, preferred first.
const std::vector<BackendEntry>& backend_registry();

// Creates the backend of that name; an empty name takes the first. The error lists the names there are.
Result<std::unique_ptr<Backend>> create_backend(const std::string& name, const BackendOptions& options);

}  // namespace leapquant
