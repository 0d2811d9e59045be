// SPDX-License-Identifier: Apache-2.0
//
// Input families of the flush: what the accuracy criteria are measured on. Every program is drawn from (seed, family,
// batch item, head) alone, so that programs are made in parallel and never depend on the batch size.
//
//   structured  checkpoints and windows of ordinary size, with edge heads 1 to 8: rank 1, zero, rank 2, tiny, huge,
//               rank 1 plus faint codes, strongly decayed, partly undecayed. Fewer than nine heads: the edge heads are
//               spread over the batch.
//   second      the checkpoint that the float reference made of the structured input, with a fresh window
//   random      noise over the whole domain
//   trained     states and windows of a trained model (see judge/trained.h)
//   policy      what the numerical policies are about (see judge/policy.h)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/geometry.h"
#include "core/status.h"
#include "judge/tensors.h"

namespace leapquant::judge {

enum class Family : int32_t { kStructured = 0, kSecond = 1, kRandom = 2, kTrained = 3, kPolicy = 4 };

std::span<const Family> all_families();
const char* family_name(Family family);
Result<Family> parse_family(std::string_view name);

struct FamilyRequest {
  Geometry geometry;
  Family family = Family::kStructured;
  int64_t batch = 1;
  uint64_t seed = 0;
  int threads = 0;             // 0: one for each CPU
  std::string data_directory;  // of the trajectory of `trained`; empty: where the build or the install put it
};

Result<FlushInputs> make_inputs(const FamilyRequest& request);

// q0 [V, R]: N(0, 1), the same for every seed. Column r doesn't depend on the rank.
std::vector<float> normal_start_basis(const Geometry& geometry);

}  // namespace leapquant::judge
