// SPDX-License-Identifier: Apache-2.0
//
// Every family and geometry keeps the strict bound on the device, program by program.
#include <cstdio>
#include <cstdlib>

#include "device.h"

namespace leapquant::cuda_test {
namespace {

class AccuracyTest : public DeviceTest {};

void expect_within_bound(const Context& context, judge::Family family, const Geometry& geometry, int64_t batch,
                         uint64_t seed = 11) {
  SCOPED_TRACE(std::string(judge::family_name(family)) + " " + to_string(geometry) + " batch " + std::to_string(batch));
  const judge::FlushInputs inputs = inputs_of(family, geometry, batch, seed);
  const judge::CheckpointTensors result = flush_or_die(context, inputs);
  const judge::Judgement judged = judge::judge_flush(inputs, result.view(), 0);
  std::printf("  %-10s %s batch %4lld: %6lld programs, %lld over, worst %.6f, absolute %.4f, averaged %.6f\n",
              judge::family_name(family), to_string(geometry).c_str(), static_cast<long long>(batch),
              static_cast<long long>(judged.programs), static_cast<long long>(judged.over), judged.worst_ratio,
              judged.worst_absolute, judged.averaged_ratio);
  EXPECT_EQ(judged.over, 0) << "worst program " << judged.worst_program;
  EXPECT_TRUE(judged.finite);
}

TEST_F(AccuracyTest, EveryFamilyAndRank) {
  const Context context("cuda");
  for (const judge::Family family : judge::all_families()) {
    for (const int32_t rank : {1, 2, 4, 8}) expect_within_bound(context, family, geometry_of(12, rank), 10);
  }
}

TEST_F(AccuracyTest, HeadCounts) {
  const Context context("cuda");
  for (const int32_t heads : {1, 4, 8, 12, 16, 24, 32, 48, 64, 96}) {
    expect_within_bound(context, judge::Family::kStructured, geometry_of(heads), 2);
  }
}

TEST_F(AccuracyTest, PublishedBatches) {
  const Context context("cuda");
  for (const int64_t batch : {16, 32, 64, 128}) {
    expect_within_bound(context, judge::Family::kRandom, geometry_of(32), batch);
  }
}

// LQ_ACCURACY_SEEDS seeds (1 if unset) of every family, 2,048 programs each.
TEST_F(AccuracyTest, ManySeeds) {
  const Context context("cuda");
  const char* const variable = std::getenv("LQ_ACCURACY_SEEDS");
  const uint64_t seeds = variable == nullptr ? 1 : std::strtoull(variable, nullptr, 10);
  for (const judge::Family family : judge::all_families()) {
    for (uint64_t seed = 100; seed < 100 + seeds; ++seed) {
      expect_within_bound(context, family, geometry_of(32), 64, seed);
    }
  }
}

}  // namespace
}  // namespace leapquant::cuda_test
