// SPDX-License-Identifier: Apache-2.0
#include "plan/host_backend.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace leapquant {

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
  if (*plan.due.fill_count.at(slot, head) != plan.geometry.window) return std::nullopt;
  return DueProgram{position, slot, head};
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

void record_error(ErrorWord& word, ErrorKind kind, int64_t position) {
  const std::atomic_ref<int32_t> first(word.first_position[static_cast<int>(kind)]);
  int32_t seen = first.load(std::memory_order_relaxed);
  while (position < seen &&
         !first.compare_exchange_weak(seen, static_cast<int32_t>(position), std::memory_order_relaxed)) {
  }
}

}  // namespace leapquant
