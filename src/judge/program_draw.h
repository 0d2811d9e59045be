// SPDX-License-Identifier: Apache-2.0
//
// Building blocks of the families: one program to fill, the key its numbers come from, and the draws they share.
#pragma once

#include <cstdint>

#include "core/geometry.h"
#include "core/program_view.h"
#include "judge/random.h"

namespace leapquant::judge {

// What a program's numbers are derived from. `item` and `head` give its place in the batch.
struct ProgramKey {
  uint64_t seed;
  int64_t item;
  int64_t head;
};

// Independent streams of one program.
enum class Part : uint64_t {
  kStructuredCheckpoint = 1,
  kStructuredWindow = 2,
  kFreshWindow = 3,
  kRandomCheckpoint = 4,
  kRandomWindow = 5,
  kPolicy = 6,
  kStepWindow = 7,
  kStepToken = 8,
  kNextToken = 9,
  kStepConstants = 10,
};

inline RandomStream program_stream(const ProgramKey& key, Part part) {
  return RandomStream(
      {key.seed, static_cast<uint64_t>(part), static_cast<uint64_t>(key.item), static_cast<uint64_t>(key.head)});
}

inline void draw_normal(RandomStream& stream, double scale, int64_t count, Bfloat16* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_bfloat16(static_cast<float>(scale * stream.normal()));
}

inline void draw_uniform(RandomStream& stream, double low, double high, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(stream.uniform(low, high));
}

inline void draw_uniform(RandomStream& stream, double low, double high, int64_t count, Half* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_half(stream.uniform(low, high));
}

// Factors, the rank outermost, so that a larger rank only adds rows.
inline void draw_factors(RandomStream& stream, const Geometry& geometry, double key_factor_size,
                         double value_factor_size, const CheckpointProgram& out) {
  for (int64_t r = 0; r < geometry.rank; ++r) {
    Half* const key_row = out.key_factor + r * out.key_factor_row;
    Half* const value_row = out.value_factor + r * out.value_factor_row;
    for (int64_t k = 0; k < geometry.key_dim; ++k) key_row[k] = to_half(key_factor_size * stream.normal());
    for (int64_t v = 0; v < geometry.value_dim; ++v) value_row[v] = to_half(value_factor_size * stream.normal());
  }
}

// Codes uniform in [-127, 127].
inline void draw_uniform_codes(RandomStream& stream, int64_t count, int8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int8_t>(static_cast<int>(255 * stream.uniform()) - 127);
}

// A checkpoint whose factors are zero.
inline void clear_factors(const Geometry& geometry, const CheckpointProgram& out) {
  for (int64_t r = 0; r < geometry.rank; ++r) {
    for (int64_t k = 0; k < geometry.key_dim; ++k) out.key_factor[r * out.key_factor_row + k] = Half{0};
    for (int64_t v = 0; v < geometry.value_dim; ++v) out.value_factor[r * out.value_factor_row + v] = Half{0};
  }
}

}  // namespace leapquant::judge
