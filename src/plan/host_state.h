// SPDX-License-Identifier: Apache-2.0
//
// What imports and exports of states share on the backends on host memory: which programs they are about, and what
// becomes of window and counter.
#pragma once

#include <optional>

#include "plan/host_backend.h"
#include "plan/state_plan.h"

namespace leapquant {

// Program `n` in [0, plan.programs()) of an import; nothing when its index names no slot of the pool. An index beyond
// the pool is recorded.
std::optional<DueProgram> imported_program(const StatePlan& plan, int64_t n);

// After the checkpoint: an empty window that begins at the chosen entry, and whether the state was finite.
void finish_import(const StatePlan& plan, const DueProgram& program, bool finite);

// Program `n` in [0, plan.programs()) of an export. Nothing when there is no state to give: zeros have then been given,
// and what is wrong has been recorded. Call it once per program.
std::optional<DueProgram> exported_program(const StatePlan& plan, int64_t n);

}  // namespace leapquant
