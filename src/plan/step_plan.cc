// SPDX-License-Identifier: Apache-2.0
#include "plan/step_plan.h"

#include <fmt/format.h>

namespace leapquant {

std::string to_string(const StepPlan& plan) {
  const std::string what = plan.in_place
                               ? fmt::format("{} indices, {} slots, in place", plan.batch, plan.pool.num_slots)
                               : fmt::format("{} programs, functional", plan.programs());
  return fmt::format("step {}: {}", to_string(plan.geometry), what);
}

}  // namespace leapquant
