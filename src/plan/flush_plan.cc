// SPDX-License-Identifier: Apache-2.0
#include "plan/flush_plan.h"

#include <fmt/format.h>

namespace leapquant {

std::string to_string(const FlushPlan& plan) {
  const std::string what = plan.in_place
                               ? fmt::format("due programs of {} indices, {} slots", plan.batch, plan.due.num_slots)
                               : fmt::format("{} programs", plan.programs());
  return fmt::format("flush {}: {}, {}", to_string(plan.geometry), what, plan.in_place ? "in place" : "functional");
}

}  // namespace leapquant
