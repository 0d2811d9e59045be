// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/checkpoint_layout.h"

namespace leapquant {
namespace {

TEST(CheckpointLayout, RegionIsTheFormatsTable) {
  const RegionOffsets offsets = region_offsets(Geometry{});
  EXPECT_EQ(offsets.key_scale, 16384);
  EXPECT_EQ(offsets.value_scale, 16896);
  EXPECT_EQ(offsets.factors, 17408);
  EXPECT_EQ(offsets.factor_row, 512);
  EXPECT_EQ(offsets.end, 19456);
}

TEST(CheckpointLayout, PoolStrides) {
  const PoolLayout compact = pool_layout(Geometry{}, Layout::kCompact);
  EXPECT_EQ(compact.base_offset, 0);
  EXPECT_EQ(compact.head_stride, 19456);
  EXPECT_EQ(compact.slot_stride, 32 * 19456);
  const PoolLayout padded = pool_layout(Geometry{}, Layout::kPadded);
  EXPECT_EQ(padded.base_offset, 49152);
  EXPECT_EQ(padded.head_stride, 65536);
  EXPECT_EQ(padded.slot_stride, 33 * 65536);
}

TEST(CheckpointLayout, WindowBytes) {
  Geometry geometry;
  EXPECT_EQ(window_program_bytes(geometry), 12864 + 4);
  geometry.gate = Gate::kGdn;
  EXPECT_EQ(window_program_bytes(geometry), 8192 + 64 + 4 + 4);
}

}  // namespace
}  // namespace leapquant
