// SPDX-License-Identifier: Apache-2.0
#include "core/geometry.h"

#include <gtest/gtest.h>

#include "core/tensor_view.h"

namespace leapquant {
namespace {

TEST(Geometry, DefaultIsThePublishedOne) {
  EXPECT_EQ(to_string(Geometry{}), "kda H=32 V=128 K=128 L=16 R=4 8-bit");
  EXPECT_TRUE(check_geometry(Geometry{}).ok());
  EXPECT_TRUE(check_required_geometry(Geometry{}, "any").ok());
}

TEST(Geometry, RefusalsNameTheField) {
  Geometry geometry;
  geometry.value_dim = 0;
  EXPECT_NE(check_geometry(geometry).message().find("value_dim"), std::string::npos);
  geometry = {};
  geometry.gate = Gate::kGdn;
  geometry.num_key_heads = 5;
  EXPECT_NE(check_geometry(geometry).message().find("num_key_heads must divide"), std::string::npos);
  geometry = {};
  geometry.rank = 5;
  EXPECT_EQ(check_required_geometry(geometry, "any").code(), Code::kUnsupported);
}

TEST(TensorView, RangesAndContiguity) {
  const std::vector<int64_t> shape = {2, 3, 4};
  TensorView view = contiguous_view(nullptr, DType::kFloat32, {}, shape);
  EXPECT_TRUE(view.contiguous_from(0));
  EXPECT_EQ(view.byte_range().end, 96);
  view.strides[0] = -12;
  EXPECT_TRUE(view.contiguous_from(1));
  EXPECT_FALSE(view.contiguous_from(0));
  EXPECT_EQ(view.byte_range().begin, -48);
  EXPECT_EQ(view.byte_range().end, 48);
  view.shape[1] = 0;
  EXPECT_EQ(view.byte_range().begin, view.byte_range().end);
}

TEST(TensorView, AnExtentOfOneMayHaveAnyStride) {
  const std::vector<int64_t> shape = {1, 4};
  TensorView view = contiguous_view(nullptr, DType::kInt8, {}, shape);
  view.strides[0] = 999;
  EXPECT_TRUE(view.contiguous_from(0));
}

TEST(TensorView, AnEmptyTensorMayHaveAnyStrides) {
  const std::vector<int64_t> shape = {0, 4};
  TensorView view = contiguous_view(nullptr, DType::kInt8, {}, shape);
  view.strides[0] = view.strides[1] = 0;
  EXPECT_TRUE(view.contiguous_from(0));
}

}  // namespace
}  // namespace leapquant
