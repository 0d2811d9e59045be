// SPDX-License-Identifier: Apache-2.0
//
// The programs of a benchmark, their bytes, and which of them are due.
#include "bench/flush_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/spread.h"
#include "bench/step_case.h"

namespace leapquant::bench {
namespace {

std::vector<int32_t> counters_of(Due due, int64_t expected_low, int64_t expected_high) {
  std::vector<int32_t> counters(32 * 257);
  const int64_t count = draw_counters(lq_geometry_default(LQ_GATE_KDA), due, counters);
  EXPECT_EQ(count, std::count(counters.begin(), counters.end(), 16));
  EXPECT_EQ(std::count(counters.begin(), counters.begin() + 32, 16), 0) << "slot 0 is reserved";
  EXPECT_GE(count, expected_low);
  EXPECT_LE(count, expected_high);
  return counters;
}

TEST(FlushCase, TheShareThatIsDue) {
  counters_of(Due::kAll, 8192, 8192);
  counters_of(Due::kNone, 0, 0);
  const std::vector<int32_t> few = counters_of(Due::kSixteenth, 430, 600);
  // Uneven: slots have different numbers of due programs.
  std::vector<int64_t> by_slot;
  for (auto slot = few.begin() + 32; slot != few.end(); slot += 32) by_slot.push_back(std::count(slot, slot + 32, 16));
  EXPECT_LE(*std::min_element(by_slot.begin(), by_slot.end()), 0);
  EXPECT_GE(*std::max_element(by_slot.begin(), by_slot.end()), 5);
}

TEST(FlushCase, BytesAreThoseOfTheFormat) {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  EXPECT_EQ(flush_program_bytes(geometry), 32320 + 24128);
  geometry.rank = 8;
  EXPECT_EQ(flush_program_bytes(geometry), 32320 + 24128 + 2 * 4 * 512);
}

TEST(StepCase, BytesAreThoseOfTheFormat) {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  EXPECT_EQ(step_program_bytes(geometry, 16) - 768 * 16, 19456 + 64 + 512 + 4 + 1026 + 1544);
  EXPECT_EQ(step_program_bytes(geometry, 8), step_program_bytes(geometry, 16) - 8 * 768);
  EXPECT_EQ(2 * step_cycle_bytes(geometry), 16 * (step_program_bytes(geometry, 7) + step_program_bytes(geometry, 8)));
  geometry.rank = 8;
  EXPECT_EQ(step_program_bytes(geometry, 0), 19456 + 64 + 512 + 4 + 1026 + 1544 + 4 * 512);
}

TEST(StepCase, BytesOfOneDecayAHead) {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_GDN);
  // Checkpoint, weights, decay and counter; half a query and key, value, gate and beta; output, entry, decay, counter
  // and the weights up to the new one.
  const int64_t empty = 19456 + 64 + 4 + 4 + 256 + 256 + 2 + 2 + 256 + 512 + 4 + 4 + 4;
  EXPECT_EQ(step_program_bytes(geometry, 0), empty);
  EXPECT_EQ(step_program_bytes(geometry, 15), empty + 15 * (512 + 4));
  geometry.num_key_heads = geometry.num_heads;
  EXPECT_EQ(step_program_bytes(geometry, 0), empty + 256);
}

TEST(Spread, OfTimesInAnyOrder) {
  const Spread spread = spread_of({5, 1, 4, 2, 9});
  EXPECT_EQ(spread.median, 4);
  EXPECT_EQ(spread.min, 1);
  EXPECT_EQ(spread.max, 9);
}

}  // namespace
}  // namespace leapquant::bench
