// SPDX-License-Identifier: Apache-2.0
#include "judge/families.h"

#include <array>

#include "judge/names.h"
#include "judge/parallel.h"
#include "judge/policy.h"
#include "judge/structured.h"
#include "judge/trained.h"
#include "ref/flush.h"

namespace leapquant::judge {
namespace {

constexpr std::array kFamilies = {Family::kStructured, Family::kSecond, Family::kRandom, Family::kTrained,
                                  Family::kPolicy};
constexpr std::array kFamilyNames = {"structured", "second", "random", "trained", "policy"};

// The checkpoint that the float reference makes of the structured program.
void draw_second_checkpoint(const Geometry& geometry, const ProgramKey& key, const float* start_basis,
                            const CheckpointProgram& checkpoint, const WindowProgram& scratch) {
  draw_structured_checkpoint(geometry, key, checkpoint);
  draw_structured_window(geometry, key, Part::kStructuredWindow, scratch);
  ref::flush_program<float>(geometry, checkpoint, scratch, start_basis, checkpoint);
}

void draw_program(const FamilyRequest& request, const ProgramKey& key, const float* start_basis,
                  const CheckpointProgram& checkpoint, const WindowProgram& window) {
  const Geometry& geometry = request.geometry;
  switch (request.family) {
    case Family::kStructured:
      draw_structured_checkpoint(geometry, key, checkpoint);
      draw_structured_window(geometry, key, Part::kStructuredWindow, window);
      return;
    case Family::kSecond:
      draw_second_checkpoint(geometry, key, start_basis, checkpoint, window);
      draw_structured_window(geometry, key, Part::kFreshWindow, window);
      return;
    case Family::kRandom:
      draw_random_checkpoint(geometry, key, checkpoint);
      draw_random_window(geometry, key, window);
      return;
    case Family::kPolicy:
      draw_policy_program(geometry, key, policy_case_of(geometry, key.item, key.head), checkpoint, window);
      return;
    case Family::kTrained:
      return;  // drawn a track at a time, not a program at a time
  }
}

Status check_request(const FamilyRequest& request) {
  LQ_RETURN_IF_ERROR(check_geometry(request.geometry));
  if (request.family == Family::kTrained && request.geometry.gate != Gate::kKda) {
    return unsupported(std::string("family 'trained': recorded for gate kda only, got ") +
                       gate_name(request.geometry.gate));
  }
  if (request.batch < 1) return invalid_argument("batch: expected at least 1, got " + std::to_string(request.batch));
  return {};
}

}  // namespace

std::span<const Family> all_families() { return kFamilies; }

const char* family_name(Family family) { return kFamilyNames[static_cast<size_t>(family)]; }

Result<Family> parse_family(std::string_view name) { return parse_name("family", name, kFamilies, kFamilyNames); }

std::vector<float> normal_start_basis(const Geometry& geometry) {
  constexpr uint64_t kStartBasisSeed = 20;
  std::vector<float> start_basis(static_cast<size_t>(geometry.value_dim) * geometry.rank);
  for (int64_t r = 0; r < geometry.rank; ++r) {
    RandomStream stream({kStartBasisSeed, static_cast<uint64_t>(r)});
    for (int64_t v = 0; v < geometry.value_dim; ++v) {
      start_basis[v * geometry.rank + r] = static_cast<float>(stream.normal());
    }
  }
  return start_basis;
}

Result<FlushInputs> make_inputs(const FamilyRequest& request) {
  LQ_RETURN_IF_ERROR(check_request(request));
  FlushInputs inputs{.geometry = request.geometry,
                     .batch = request.batch,
                     .checkpoint = CheckpointTensors(request.geometry, request.batch),
                     .window = WindowTensors(request.geometry, request.batch),
                     .q0 = request.family == Family::kPolicy ? orthonormal_start_basis(request.geometry, request.seed)
                                                             : normal_start_basis(request.geometry)};
  if (request.family == Family::kTrained) {
    const Result<Trajectory> trajectory = read_trajectory(request.data_directory);
    LQ_RETURN_IF_ERROR(trajectory.status());
    LQ_RETURN_IF_ERROR(draw_trained(trajectory.value(), request.seed, request.threads, inputs));
    return inputs;
  }
  const CheckpointView checkpoint = inputs.checkpoint.view();
  const WindowView window = inputs.window.view();
  parallel_for(inputs.programs(), request.threads, [&](int64_t n) {
    const ProgramKey key{request.seed, n / request.geometry.num_heads, n % request.geometry.num_heads};
    draw_program(request, key, inputs.q0.data(), checkpoint.at(key.item, key.head), window.at(key.item, key.head));
  });
  return inputs;
}

}  // namespace leapquant::judge
