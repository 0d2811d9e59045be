// SPDX-License-Identifier: Apache-2.0
#include "plan/host_state.h"

#include <cstring>

namespace leapquant {
namespace {

// The program, or nothing when its index names no slot of the pool.
std::optional<DueProgram> named_program(const StatePlan& plan, int64_t n) {
  const int64_t position = n / plan.geometry.num_heads;
  const int64_t slot = plan.pool.slot_index[position];
  if (slot <= 0) return std::nullopt;
  if (slot < plan.pool.num_slots) return DueProgram{position, slot, n % plan.geometry.num_heads};
  record_error(*plan.pool.errors, ErrorKind::kIndex, position);
  return std::nullopt;
}

bool has_state(const StatePlan& plan, const DueProgram& program) {
  const int32_t count = *plan.pool.fill_count.at(program.item, program.head);
  if (count >= 0 && count <= plan.geometry.window) return true;
  record_error(*plan.pool.errors, ErrorKind::kCounter, program.position);
  return false;
}

}  // namespace

std::optional<DueProgram> imported_program(const StatePlan& plan, int64_t n) { return named_program(plan, n); }

void finish_import(const StatePlan& plan, const DueProgram& program, bool finite) {
  clear_window(plan.geometry, plan.window.at(program.item, program.head));
  *plan.pool.fill_count.at(program.item, program.head) =
      plan.first_entry.base == nullptr ? 0 : *plan.first_entry.at(program.position, program.head);
  if (!finite) record_error(*plan.pool.errors, ErrorKind::kNonFinite, program.position);
}

std::optional<DueProgram> exported_program(const StatePlan& plan, int64_t n) {
  const auto program = named_program(plan, n);
  if (program && has_state(plan, *program)) return program;
  const DenseState state = plan.states.at(n / plan.geometry.num_heads, n % plan.geometry.num_heads);
  std::memset(state.data, 0, static_cast<size_t>(plan.geometry.state_elements() * dtype_bytes(state.dtype)));
  return std::nullopt;
}

}  // namespace leapquant
