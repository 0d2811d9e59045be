// SPDX-License-Identifier: Apache-2.0
//
// The policy family: programs on which a flush can lose its way although the format can hold them. Constant and
// rank-deficient heads, heads of zeros or far below one, checkpoints that decayed to nothing, extreme gates, and
// entries of weight zero that hold no numbers at all.
#pragma once

#include <cstdint>
#include <vector>

#include "judge/program_draw.h"

namespace leapquant::judge {

// The cases take turns over the programs of a batch.
int64_t policy_case_count();
const char* policy_case_name(int64_t index);
int64_t policy_case_of(const Geometry& geometry, int64_t item, int64_t head);

void draw_policy_program(const Geometry& geometry, const ProgramKey& key, int64_t case_index,
                         const CheckpointProgram& checkpoint, const WindowProgram& window);

// q0 [V, R] with orthonormal columns, drawn from `seed`.
std::vector<float> orthonormal_start_basis(const Geometry& geometry, uint64_t seed);

}  // namespace leapquant::judge
