// SPDX-License-Identifier: Apache-2.0
//
// Input families of the step. As those of the flush (judge/families.h): every program is drawn from its own key.
//
//   structured  checkpoints of ordinary size, windows of a random fill, with edge heads 1 to 6: empty window and no
//               codes, zero state (every second item with a zero value, so that all is zero), last entry free, tiny,
//               huge, strongly decayed (GDN: rank 1). Fewer than seven heads: the edge heads are spread over the batch.
//   next        the structured input after the float reference has stepped it, with a new token; windows whose last
//               entry was free stay as they were
//   random      noise over the whole domain, beyond the occupied entries as well
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/status.h"
#include "judge/step_tensors.h"

namespace leapquant::judge {

enum class StepFamily : int32_t { kStructured = 0, kNext = 1, kRandom = 2 };

std::span<const StepFamily> all_step_families();
const char* step_family_name(StepFamily family);
Result<StepFamily> parse_step_family(std::string_view name);

std::span<const GateFunction> all_gate_functions();
const char* gate_function_name(GateFunction function);
Result<GateFunction> parse_gate_function(std::string_view name);

struct StepRequest {
  Geometry geometry;
  StepFamily family = StepFamily::kStructured;
  int64_t batch = 1;
  uint64_t seed = 0;
  int threads = 0;  // 0: one for each CPU
  GateRule gate;
};

Result<StepInputs> make_step_inputs(const StepRequest& request);

// The edge heads of the structured family.
enum class StepEdge : int32_t {
  kNone = 0,
  kEmptyWindow = 1,
  kZero = 2,
  kLastEntryFree = 3,
  kTiny = 4,
  kHuge = 5,
  kStrongDecay = 6,  // KDA
  kRankOne = 7,      // GDN, in its place: one entry that counts, and no checkpoint
};
inline constexpr int64_t kStepEdgeCount = 7;
StepEdge step_edge_of(const Geometry& geometry, int64_t item, int64_t head);

}  // namespace leapquant::judge
