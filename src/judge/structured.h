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

// What an edge multiplies the drawn numbers by. A factor of zero empties them.
struct EdgeSizes {
  double codes = 1;
  double key_scale = 1;
  double key_factor = 1;
  double value_factor = 1;
  double window_key = 1;
  double window_update = 1;
};
inline constexpr EdgeSizes kZeroSizes = {
    .codes = 0, .key_factor = 0, .value_factor = 0, .window_key = 0, .window_update = 0};
inline constexpr EdgeSizes kTinySizes = {.key_scale = 1e-4, .key_factor = 1e-2, .window_update = 1e-4};
inline constexpr EdgeSizes kHugeSizes = {.key_scale = 3e2, .key_factor = 17, .window_update = 3e2};

inline constexpr double kStrongDecay = -200;  // added to the log-decay

// Codes, scales and factors of the structured family, multiplied by `sizes`.
void draw_sized_checkpoint(const Geometry& geometry, const ProgramKey& key, const EdgeSizes& sizes,
                           const CheckpointProgram& out);

void draw_structured_checkpoint(const Geometry& geometry, const ProgramKey& key, const CheckpointProgram& out);

// `part` tells the structured window from the fresh one of the second family. Both belong to the same edge: a tiny head
// stays tiny, a head of zeros stays zero.
void draw_structured_window(const Geometry& geometry, const ProgramKey& key, Part part, const WindowProgram& out);

void draw_random_checkpoint(const Geometry& geometry, const ProgramKey& key, const CheckpointProgram& out);
void draw_random_window(const Geometry& geometry, const ProgramKey& key, const WindowProgram& out);

}  // namespace leapquant::judge
