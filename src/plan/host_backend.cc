// SPDX-License-Identifier: Apache-2.0
#include "plan/host_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace leapquant {
namespace {

// With any fill there is nothing to quantize in a window that a flush has emptied: its counter alone changes.
bool is_due(const FlushPlan& plan, int64_t slot, int64_t head) {
  int32_t& count = *plan.due.fill_count.at(slot, head);
  if (!plan.any_fill || count != plan.geometry.window) {
    return plan.any_fill ? count > 0 && count < plan.geometry.window : count == plan.geometry.window;
  }
  const bool flushed = plan.window.window_weight.at(slot, head)[plan.geometry.window - 1] == 0.0f;
  if (flushed) count = 0;
  return !flushed;
}

}  // namespace

Result<void*> HostBackend::allocate(size_t bytes) {
  const auto physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = MAP_FAILED;
  if (bytes <= physical) memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return out_of_memory("cannot allocate " + std::to_string(bytes) + " bytes; this machine has " +
                         std::to_string(physical));
  }
  // A pool is walked in strides of tens of kilobytes: large pages spare the address translation. Advice only.
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void HostBackend::release(void* memory, size_t bytes) { munmap(memory, bytes); }

Status HostBackend::fill16(void* memory, uint16_t pattern, size_t count) {
  std::fill_n(static_cast<uint16_t*>(memory), count, pattern);
  return {};
}

Status HostBackend::fill32(void* memory, uint32_t pattern, size_t count) {
  std::fill_n(static_cast<uint32_t*>(memory), count, pattern);
  return {};
}

Status HostBackend::copy_to_host(void* host, const void* device, size_t bytes, void* /*stream*/) {
  if (bytes != 0) std::memcpy(host, device, bytes);
  return {};
}

Status HostBackend::copy_from_host(void* device, const void* host, size_t bytes, void* /*stream*/) {
  if (bytes != 0) std::memcpy(device, host, bytes);
  return {};
}

std::optional<DueProgram> due_program(const FlushPlan& plan, int64_t n) {
  const int64_t position = n / plan.geometry.num_heads;
  const int64_t head = n % plan.geometry.num_heads;
  if (!plan.in_place) return DueProgram{position, position, head};
  const int64_t slot = plan.due.slot_index[position];
  if (slot <= 0) return std::nullopt;
  if (slot >= plan.due.num_slots) {
    record_error(*plan.due.errors, ErrorKind::kIndex, position);
    return std::nullopt;
  }
  if (!is_due(plan, slot, head)) return std::nullopt;
  return DueProgram{position, slot, head};
}

void finish_flush(const FlushPlan& plan, const DueProgram& program, bool finite) {
  if (!plan.in_place) return;
  reset_window(plan.geometry, plan.window.at(program.item, program.head));
  if (plan.any_fill) *plan.due.fill_count.at(program.item, program.head) = 0;
  if (!finite) record_error(*plan.due.errors, ErrorKind::kNonFinite, program.position);
}

void reset_window(const Geometry& geometry, const WindowProgram& window) {
  std::fill_n(window.window_weight, geometry.window, 0.0f);
  if (geometry.gate == Gate::kGdn) {
    *window.decay = 1.0f;
    return;
  }
  std::fill_n(window.window_gate, int64_t{geometry.window} * geometry.key_dim, Half{kHalfOne});
  std::fill_n(window.log_decay, geometry.key_dim, 0.0f);
}

void clear_window(const Geometry& geometry, const WindowProgram& window) {
  std::fill_n(window.window_key, int64_t{geometry.window} * geometry.key_dim, Bfloat16{0});
  std::fill_n(window.window_update, int64_t{geometry.window} * geometry.value_dim, Bfloat16{0});
  reset_window(geometry, window);
}

void record_error(ErrorWord& word, ErrorKind kind, int64_t position) {
  const std::atomic_ref<int32_t> first(word.first_position[static_cast<int>(kind)]);
  int32_t seen = first.load(std::memory_order_relaxed);
  while (position < seen &&
         !first.compare_exchange_weak(seen, static_cast<int32_t>(position), std::memory_order_relaxed)) {
  }
}

}  // namespace leapquant
