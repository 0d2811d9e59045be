// SPDX-License-Identifier: Apache-2.0
//
// The structured and random families, one program at a time.
#pragma once

#include "judge/program_draw.h"

namespace leapquant::judge {

// The edge heads of the structured family, numbered as in judge/families.h.
enum class Edge : int32_t {
  kNone = 0,
  kRankOne = 1,
  kZero = 2,
  kRankTwo = 3,
  kTiny = 4,
  kHuge = 5,
  kRankOneFaintCodes = 6,
  kStrongDecay = 7,
  kUndecayedChannels = 8,
};
inline constexpr int64_t kEdgeCount = 9;
inline constexpr int64_t kGdnEdgeCount = 7;  // the last two are about decays of single channels

// Which edge a program is: its head index, or, with fewer heads than edges, its place in the batch, so that none is
// lost.
Edge edge_of(const Geometry& geometry, int64_t item, int64_t head);

void draw_structured_checkpoint(const Geometry& geometry, const ProgramKey& key, const CheckpointProgram& out);

// `part` tells the structured window from the fresh one of the second family. Both belong to the same edge: a tiny head
// stays tiny, a head of zeros stays zero.
void draw_structured_window(const Geometry& geometry, const ProgramKey& key, Part part, const WindowProgram& out);

void draw_random_checkpoint(const Geometry& geometry, const ProgramKey& key, const CheckpointProgram& out);
void draw_random_window(const Geometry& geometry, const ProgramKey& key, const WindowProgram& out);

}  // namespace leapquant::judge
