// SPDX-License-Identifier: Apache-2.0
//
// Exact values and the numerical policies, and the same bits wherever a program stands.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "device.h"
#include "judge/policy.h"
#include "ref/flush.h"

namespace leapquant::cuda_test {
namespace {

constexpr uint32_t kFloorBits = 0x2B8CBCCC;  // 1e-12f

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// One program: everything zero except scales and gates of 1, q0 the first columns of the identity.
judge::FlushInputs blank_inputs() {
  judge::FlushInputs inputs;
  inputs.geometry = geometry_of(1);
  inputs.batch = 1;
  inputs.checkpoint = judge::CheckpointTensors(inputs.geometry, 1);
  inputs.window = judge::WindowTensors(inputs.geometry, 1);
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 1.0f);
  std::fill(inputs.checkpoint.s_v.begin(), inputs.checkpoint.s_v.end(), 1.0f);
  std::fill(inputs.window.gbuf.begin(), inputs.window.gbuf.end(), Half{kHalfOne});
  inputs.q0.assign(128 * 4, 0.0f);
  for (int r = 0; r < 4; ++r) inputs.q0[static_cast<size_t>(r * 4 + r)] = 1.0f;
  return inputs;
}

void clear_basis(judge::FlushInputs& inputs) { std::fill(inputs.q0.begin(), inputs.q0.end(), 0.0f); }

class NumbersTest : public DeviceTest {};

TEST_F(NumbersTest, ZeroHeadGivesFloorScalesAndZeroFactors) {
  const judge::CheckpointTensors result = flush_or_die(Context("cuda"), blank_inputs());
  for (const int8_t code : result.codes) ASSERT_EQ(code, 0);
  for (const Half factor : result.u) ASSERT_EQ(factor.bits & 0x7FFF, 0);
  for (const Half factor : result.q) ASSERT_EQ(factor.bits & 0x7FFF, 0);
  for (const float scale : result.s_k) ASSERT_EQ(bits(scale), kFloorBits);
  for (const float scale : result.s_v) ASSERT_EQ(bits(scale), kFloorBits);
}

TEST_F(NumbersTest, TiesRoundToEven) {
  judge::FlushInputs inputs = blank_inputs();
  clear_basis(inputs);
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 127.0f);
  const auto code = [&](int v, int k) -> int8_t& { return inputs.checkpoint.codes[static_cast<size_t>(v * 128 + k)]; };
  code(0, 0) = 127;
  code(1, 0) = 1;
  code(0, 1) = 125;
  code(0, 2) = -125;
  for (const int column : {1, 2}) {
    for (int v = 1; v <= 3; ++v) code(v, column) = 127;
    code(4, column) = 6;
  }
  const judge::CheckpointTensors result = flush_or_die(Context("cuda"), inputs);
  EXPECT_EQ(result.s_k[0], 1.0f);
  EXPECT_EQ(result.s_k[1], 2.0f);
  EXPECT_EQ(result.s_k[2], 2.0f);
  EXPECT_EQ(bits(result.s_k[3]), kFloorBits);
  EXPECT_EQ(result.s_v[0], 127.0f);
  EXPECT_EQ(result.codes[0], 127);
  EXPECT_EQ(result.codes[1], 62);
  EXPECT_EQ(result.codes[2], -62);
  EXPECT_EQ(result.codes[128], 2);
  EXPECT_EQ(result.codes[129], 127);
  EXPECT_EQ(result.codes[130], 127);
}

TEST_F(NumbersTest, StoredMinus128DecodesAsItself) {
  judge::FlushInputs inputs = blank_inputs();
  clear_basis(inputs);
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 127.0f);
  inputs.checkpoint.codes[0] = -128;
  const judge::CheckpointTensors result = flush_or_die(Context("cuda"), inputs);
  EXPECT_EQ(result.s_k[0], 1.0f);
  EXPECT_EQ(result.s_v[0], 128.0f);
  EXPECT_EQ(result.codes[0], -127);
}

TEST_F(NumbersTest, EntryDecayIsTheProductOfLaterGates) {
  for (const float gate : {0.0f, 0x1p-14f, 1.0f, 0.5f}) {
    judge::FlushInputs inputs = blank_inputs();
    clear_basis(inputs);
    for (size_t j = 0; j < 16; ++j) {
      inputs.window.w[j] = 1.0f;
      inputs.window.kbuf[j * 128 + j] = to_bfloat16(1.0f);
      inputs.window.ubuf[j * 128 + j] = to_bfloat16(1.0f);
    }
    std::fill(inputs.window.gbuf.begin(), inputs.window.gbuf.end(), to_half(gate));
    const judge::CheckpointTensors result = flush_or_die(Context("cuda"), inputs);
    const std::vector<double> state = ref::decode(inputs.geometry, result.view().at(0, 0));
    for (size_t j = 0; j < 16; ++j) {
      const double expected = std::pow(static_cast<double>(gate), 15.0 - static_cast<double>(j));
      EXPECT_NEAR(state[j * 128 + j], expected, expected * 1e-5 + 1e-20) << "gate " << gate << ", entry " << j;
    }
  }
}

TEST_F(NumbersTest, AnEntryOfWeightZeroContributesNothing) {
  judge::FlushInputs clean = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  for (const size_t entry : {size_t{0}, size_t{3}, size_t{16}, size_t{31}}) clean.window.w[entry] = 0.0f;
  judge::FlushInputs dirty = clean;
  for (const size_t entry : {size_t{0}, size_t{3}, size_t{16}, size_t{31}}) {
    std::fill_n(dirty.window.kbuf.begin() + static_cast<int64_t>(entry) * 128, 128, Bfloat16{0x7FC0});
    std::fill_n(dirty.window.ubuf.begin() + static_cast<int64_t>(entry) * 128, 128, Bfloat16{0x7F80});
  }
  EXPECT_EQ(bytes_of(flush_or_die(Context("cuda"), dirty)), bytes_of(flush_or_die(Context("cuda"), clean)));
}

// A constant head of 6000 has a key factor of 6.8e4, beyond fp16: it saturates and the residual takes the rest.
TEST_F(NumbersTest, FactorsSaturate) {
  judge::FlushInputs inputs = blank_inputs();
  std::fill(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{120});
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 6350.0f);
  const judge::CheckpointTensors result = flush_or_die(Context("cuda"), inputs);
  float largest = 0;
  for (const Half factor : result.u) largest = std::max(largest, std::fabs(to_float(factor)));
  EXPECT_EQ(largest, 65504.0f);
  for (const double value : ref::decode(inputs.geometry, result.view().at(0, 0))) ASSERT_NEAR(value, 6000.0, 6.0);
}

TEST_F(NumbersTest, DependentColumnsGiveZeroFactors) {
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(1), 1);
  for (size_t v = 0; v < 128; ++v) inputs.q0[v * 4 + 1] = -2.0f * inputs.q0[v * 4];
  const judge::CheckpointTensors result = flush_or_die(Context("cuda"), inputs);
  for (size_t i = 128; i < 256; ++i) {
    ASSERT_EQ(result.u[i].bits & 0x7FFF, 0) << i;
    ASSERT_EQ(result.q[i].bits & 0x7FFF, 0) << i;
  }
  EXPECT_TRUE(judge::judge_flush(inputs, result.view(), 1).passes());
}

TEST_F(NumbersTest, RankDeficientHeadsWithManyStartBases) {
  const Context context("cuda");
  for (const float value : {1e-3f, 1.0f, 5000.0f}) {
    judge::FlushInputs inputs = blank_inputs();
    std::fill(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{127});
    std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), value);
    for (uint64_t seed = 0; seed < 100; ++seed) {
      inputs.q0 = judge::orthonormal_start_basis(inputs.geometry, seed);
      const judge::CheckpointTensors result = flush_or_die(context, inputs);
      double error = 0;
      for (const double decoded : ref::decode(inputs.geometry, result.view().at(0, 0))) {
        error += std::fabs(decoded - static_cast<double>(value)) / 16384;
      }
      ASSERT_LE(error, 1e-3 * static_cast<double>(value)) << "constant " << value << ", seed " << seed;
    }
  }
}

TEST_F(NumbersTest, TinyHeadsDoNotUnderflow) {
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(1), 1);
  for (float& scale : inputs.checkpoint.s_k) scale *= 1e-10f;
  for (float& scale : inputs.checkpoint.s_v) scale *= 1e-10f;
  std::fill(inputs.checkpoint.u.begin(), inputs.checkpoint.u.end(), Half{0});
  std::fill(inputs.window.w.begin(), inputs.window.w.end(), 0.0f);
  std::fill(inputs.window.pcum.begin(), inputs.window.pcum.end(), 0.0f);
  const judge::CheckpointTensors result = flush_or_die(Context("cuda"), inputs);
  double norm = 0;
  for (size_t v = 0; v < 128; ++v) norm += std::pow(static_cast<double>(to_float(result.q[v])), 2);
  EXPECT_NEAR(norm, 1.0, 1e-2);
  EXPECT_TRUE(judge::judge_flush(inputs, result.view(), 1).passes());
}

TEST_F(NumbersTest, NonFiniteInputsStayInTheirProgram) {
  const judge::FlushInputs clean = inputs_of(judge::Family::kRandom, geometry_of(5), 3);
  const judge::CheckpointTensors expected = flush_or_die(Context("cuda"), clean);
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    judge::FlushInputs dirty = clean;
    const size_t program = 7;
    dirty.checkpoint.s_k[program * 128 + 5] = poison;
    judge::CheckpointTensors result = flush_or_die(Context("cuda"), dirty);
    for (const int8_t code : result.codes) ASSERT_GE(code, -127);
    bool finite = true;
    for (size_t k = 0; k < 128; ++k) finite = finite && std::isfinite(result.s_k[program * 128 + k]);
    EXPECT_FALSE(finite);
    std::copy_n(expected.codes.begin() + program * 16384, 16384, result.codes.begin() + program * 16384);
    std::copy_n(expected.s_k.begin() + program * 128, 128, result.s_k.begin() + program * 128);
    std::copy_n(expected.s_v.begin() + program * 128, 128, result.s_v.begin() + program * 128);
    std::copy_n(expected.u.begin() + program * 512, 512, result.u.begin() + program * 512);
    std::copy_n(expected.q.begin() + program * 512, 512, result.q.begin() + program * 512);
    EXPECT_EQ(bytes_of(result), bytes_of(expected));
  }
}

TEST_F(NumbersTest, TheSameBitsEveryTime) {
  const Context context("cuda");
  for (const int32_t rank : {4, 8}) {
    const DeviceFlush flush(inputs_of(judge::Family::kStructured, geometry_of(32, rank), 40));
    check(flush.run(context));
    const auto expected = bytes_of(flush.result());
    for (int run = 0; run < 50; ++run) {
      check(flush.run(context));
      ASSERT_EQ(bytes_of(flush.result()), expected) << "rank " << rank << ", run " << run;
    }
  }
}

// The same programs as one head each, and alone.
TEST_F(NumbersTest, BitsDoNotDependOnTheBatch) {
  const Context context("cuda");
  for (const int32_t rank : {1, 4, 8}) {
    const judge::FlushInputs inputs = inputs_of(judge::Family::kStructured, geometry_of(12, rank), 3);
    const auto expected = bytes_of(flush_or_die(context, inputs));
    const judge::FlushInputs heads = single_heads(inputs);
    EXPECT_EQ(bytes_of(flush_or_die(context, heads)), expected);
    const judge::CheckpointTensors all = flush_or_die(context, inputs);
    for (const int64_t program : {0, 17, 35}) {
      judge::FlushInputs one = heads;
      one.batch = 1;
      const auto cut = [&](auto& values) {
        const auto size = static_cast<int64_t>(values.size()) / heads.batch;
        values = {values.begin() + program * size, values.begin() + (program + 1) * size};
      };
      cut(one.checkpoint.codes);
      cut(one.checkpoint.s_k);
      cut(one.checkpoint.s_v);
      cut(one.checkpoint.u);
      cut(one.checkpoint.q);
      cut(one.window.kbuf);
      cut(one.window.ubuf);
      cut(one.window.w);
      cut(one.window.gbuf);
      cut(one.window.pcum);
      const judge::CheckpointTensors alone = flush_or_die(context, one);
      EXPECT_TRUE(std::equal(alone.codes.begin(), alone.codes.end(), all.codes.begin() + program * 16384));
      EXPECT_TRUE(std::equal(alone.s_v.begin(), alone.s_v.end(), all.s_v.begin() + program * 128));
    }
  }
}

}  // namespace
}  // namespace leapquant::cuda_test
