// SPDX-License-Identifier: Apache-2.0
//
// Exact values, and the numerical policies: ties, zero and tiny heads, saturation, containment.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backends.h"
#include "judge/policy.h"
#include "ref/flush.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace leapquant::conformance {
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

using NumbersTest = BackendTest;

TEST_P(NumbersTest, ZeroHeadGivesFloorScalesAndZeroFactors) {
  const judge::CheckpointTensors result = flush_or_die(context(), blank_inputs());
  for (const int8_t code : result.codes) ASSERT_EQ(code, 0);
  for (const Half factor : result.u) ASSERT_EQ(factor.bits & 0x7FFF, 0);
  for (const Half factor : result.q) ASSERT_EQ(factor.bits & 0x7FFF, 0);
  for (const float scale : result.s_k) ASSERT_EQ(bits(scale), kFloorBits);
  for (const float scale : result.s_v) ASSERT_EQ(bits(scale), kFloorBits);
}

TEST_P(NumbersTest, TiesRoundToEven) {
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
  const judge::CheckpointTensors result = flush_or_die(context(), inputs);
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

TEST_P(NumbersTest, StoredMinus128DecodesAsItself) {
  judge::FlushInputs inputs = blank_inputs();
  clear_basis(inputs);
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 127.0f);
  inputs.checkpoint.codes[0] = -128;
  const judge::CheckpointTensors result = flush_or_die(context(), inputs);
  EXPECT_EQ(result.s_k[0], 1.0f);
  EXPECT_EQ(result.s_v[0], 128.0f);
  EXPECT_EQ(result.codes[0], -127);
}

// S = diag(gate products): the decay of an entry is the product of the gates after it, and the last entry has none.
TEST_P(NumbersTest, EntryDecayIsTheProductOfLaterGates) {
  for (const float gate : {0.0f, 0x1p-14f, 1.0f, 0.5f}) {
    judge::FlushInputs inputs = blank_inputs();
    clear_basis(inputs);
    for (size_t j = 0; j < 16; ++j) {
      inputs.window.w[j] = 1.0f;
      inputs.window.kbuf[j * 128 + j] = to_bfloat16(1.0f);
      inputs.window.ubuf[j * 128 + j] = to_bfloat16(1.0f);
    }
    std::fill(inputs.window.gbuf.begin(), inputs.window.gbuf.end(), to_half(gate));
    const judge::CheckpointTensors result = flush_or_die(context(), inputs);
    const std::vector<double> state = ref::decode(inputs.geometry, result.view().at(0, 0));
    for (size_t j = 0; j < 16; ++j) {
      const double expected = std::pow(static_cast<double>(gate), 15.0 - static_cast<double>(j));
      EXPECT_NEAR(state[j * 128 + j], expected, expected * 1e-5 + 1e-20) << "gate " << gate << ", entry " << j;
    }
  }
}

TEST_P(NumbersTest, AnEntryOfWeightZeroContributesNothing) {
  judge::FlushInputs clean = inputs_of(judge::Family::kRandom, geometry_of(2), 1);
  for (const size_t entry : {size_t{0}, size_t{3}, size_t{16}, size_t{31}}) clean.window.w[entry] = 0.0f;
  judge::FlushInputs dirty = clean;
  for (const size_t entry : {size_t{0}, size_t{3}, size_t{16}, size_t{31}}) {
    std::fill_n(dirty.window.kbuf.begin() + static_cast<int64_t>(entry) * 128, 128, Bfloat16{0x7FC0});
    std::fill_n(dirty.window.ubuf.begin() + static_cast<int64_t>(entry) * 128, 128, Bfloat16{0x7F80});
  }
  EXPECT_EQ(bytes_of(flush_or_die(context(), dirty)), bytes_of(flush_or_die(context(), clean)));
}

// A constant head of 6000 has a key factor of 6.8e4, beyond fp16: it saturates and the residual takes the rest.
TEST_P(NumbersTest, FactorsSaturate) {
  judge::FlushInputs inputs = blank_inputs();
  std::fill(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{120});
  std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), 6350.0f);
  const judge::CheckpointTensors result = flush_or_die(context(), inputs);
  float largest = 0;
  for (const Half factor : result.u) {
    ASSERT_TRUE(std::isfinite(to_float(factor)));
    largest = std::max(largest, std::fabs(to_float(factor)));
  }
  EXPECT_EQ(largest, 65504.0f);
  for (const double value : ref::decode(inputs.geometry, result.view().at(0, 0))) ASSERT_NEAR(value, 6000.0, 6.0);
}

// A start basis whose second column repeats the first has nothing to add in that direction.
TEST_P(NumbersTest, DependentColumnsGiveZeroFactors) {
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(1), 1);
  for (size_t v = 0; v < 128; ++v) inputs.q0[v * 4 + 1] = -2.0f * inputs.q0[v * 4];
  const judge::CheckpointTensors result = flush_or_die(context(), inputs);
  for (size_t i = 128; i < 256; ++i) {
    ASSERT_EQ(result.u[i].bits & 0x7FFF, 0) << i;
    ASSERT_EQ(result.q[i].bits & 0x7FFF, 0) << i;
  }
  EXPECT_TRUE(judge::judge_flush(inputs, result.view(), 1).passes());
}

TEST_P(NumbersTest, RankDeficientHeadsWithManyStartBases) {
  const Context backend = context();
  for (const float value : {1e-3f, 1.0f, 5000.0f}) {
    judge::FlushInputs inputs = blank_inputs();
    std::fill(inputs.checkpoint.codes.begin(), inputs.checkpoint.codes.end(), int8_t{127});
    std::fill(inputs.checkpoint.s_k.begin(), inputs.checkpoint.s_k.end(), value);
    for (uint64_t seed = 0; seed < 100; ++seed) {
      inputs.q0 = judge::orthonormal_start_basis(inputs.geometry, seed);
      const judge::CheckpointTensors result = flush_or_die(backend, inputs);
      double error = 0;
      for (const double decoded : ref::decode(inputs.geometry, result.view().at(0, 0))) {
        error += std::fabs(decoded - static_cast<double>(value)) / 16384;
      }
      ASSERT_LE(error, 1e-3 * static_cast<double>(value)) << "constant " << value << ", seed " << seed;
    }
  }
}

// Heads far below the range in which squares are representable keep their factors' directions and their values.
TEST_P(NumbersTest, TinyHeadsDoNotUnderflow) {
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(1), 1);
  for (float& scale : inputs.checkpoint.s_k) scale *= 1e-10f;
  for (float& scale : inputs.checkpoint.s_v) scale *= 1e-10f;
  std::fill(inputs.checkpoint.u.begin(), inputs.checkpoint.u.end(), Half{0});
  std::fill(inputs.window.w.begin(), inputs.window.w.end(), 0.0f);
  std::fill(inputs.window.pcum.begin(), inputs.window.pcum.end(), 0.0f);
  const judge::CheckpointTensors result = flush_or_die(context(), inputs);
  double norm = 0;
  for (size_t v = 0; v < 128; ++v) norm += std::pow(static_cast<double>(to_float(result.q[v])), 2);
  EXPECT_NEAR(norm, 1.0, 1e-2);
  EXPECT_TRUE(judge::judge_flush(inputs, result.view(), 1).passes());
}

// Plants a value in one element of a program, in every tensor that a flush reads.
struct Poison {
  const char* tensor;
  void (*plant)(judge::FlushInputs& inputs, size_t program, float value);
};

using Inputs = judge::FlushInputs;

constexpr size_t kKey = 5;    // the channel that is spoilt
constexpr size_t kEntry = 9;  // the window entry

constexpr Poison kPoisons[] = {
    {"s_k", [](Inputs& i, size_t n, float x) { i.checkpoint.s_k[n * 128 + kKey] = x; }},
    {"s_v", [](Inputs& i, size_t n, float x) { i.checkpoint.s_v[n * 128 + kKey] = x; }},
    {"u", [](Inputs& i, size_t n, float x) { i.checkpoint.u[n * 512 + kKey] = to_half(x); }},
    {"q", [](Inputs& i, size_t n, float x) { i.checkpoint.q[n * 512 + kKey] = to_half(x); }},
    {"kbuf", [](Inputs& i, size_t n, float x) { i.window.kbuf[(n * 16 + kEntry) * 128 + kKey] = to_bfloat16(x); }},
    {"ubuf", [](Inputs& i, size_t n, float x) { i.window.ubuf[(n * 16 + kEntry) * 128 + kKey] = to_bfloat16(x); }},
    {"w", [](Inputs& i, size_t n, float x) { i.window.w[n * 16 + kEntry] = x; }},
    {"gbuf", [](Inputs& i, size_t n, float x) { i.window.gbuf[(n * 16 + kEntry) * 128 + kKey] = to_half(x); }},
    {"pcum", [](Inputs& i, size_t n, float x) { i.window.pcum[n * 128 + kKey] = x; }},
};

TEST_P(NumbersTest, NonFiniteInputsStayInTheirProgramAndAreReported) {
  const judge::FlushInputs clean = inputs_of(judge::Family::kRandom, geometry_of(5), 3);
  const Context backend = context(2);
  const judge::CheckpointTensors expected = flush_or_die(backend, clean);
  constexpr int64_t kProgram = 7;  // item 1, head 2
  for (const Poison& poison : kPoisons) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      SCOPED_TRACE(std::string(poison.tensor) + " " + std::to_string(value));
      judge::FlushInputs dirty = clean;
      poison.plant(dirty, kProgram, value);
      judge::CheckpointTensors result = flush_or_die(backend, dirty);
      for (const int8_t code : result.codes) ASSERT_GE(code, -127);
      const auto s_k = result.s_k.begin() + kProgram * 128;
      EXPECT_FALSE(std::all_of(s_k, s_k + 128, [](float scale) { return std::isfinite(scale); }));
      copy_program(expected, kProgram, result);
      EXPECT_EQ(bytes_of(result), bytes_of(expected));

      const MirroredPool pool = filled_pool(backend, dirty, 4);
      const std::vector<int32_t> order = {1, 2, 3};
      pool.flush(order, dirty);
      const lq_pool_errors errors = pool.read_errors();
      EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
      EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 1);
    }
  }
}

TEST_P(NumbersTest, AStartBasisThatIsNotFiniteIsReported) {
  judge::FlushInputs inputs = inputs_of(judge::Family::kRandom, geometry_of(2), 2);
  inputs.q0[9] = std::numeric_limits<float>::quiet_NaN();
  const MirroredPool pool = filled_pool(context(2), inputs, 3);
  const std::vector<int32_t> order = {0, 2, 1};
  pool.flush(order, inputs);
  const lq_pool_errors errors = pool.read_errors();
  EXPECT_EQ(errors.flags, 1u << LQ_ERROR_NONFINITE);
  EXPECT_EQ(errors.first_position[LQ_ERROR_NONFINITE], 1);
}

#if defined(__x86_64__)
TEST_P(NumbersTest, FloatingPointModeIsLeftAlone) {
  const unsigned before = _mm_getcsr() & ~0x3Fu;  // the sticky flags may change
  flush_or_die(context(2), inputs_of(judge::Family::kStructured, geometry_of(9), 2));
  EXPECT_EQ(_mm_getcsr() & ~0x3Fu, before);
}
#endif

// Subnormal keys, gates and factors count: 2^-24 is the smallest fp16.
TEST_P(NumbersTest, SubnormalFactorsAreRead) {
  judge::FlushInputs inputs = blank_inputs();
  clear_basis(inputs);
  inputs.checkpoint.u[0] = Half{1};
  inputs.checkpoint.q[0] = Half{0x3C00};
  const judge::CheckpointTensors result = flush_or_die(context(), inputs);
  EXPECT_NEAR(ref::decode(inputs.geometry, result.view().at(0, 0))[0], 0x1p-24, 0x1p-40);
}

LQ_FOR_ALL_BACKENDS(NumbersTest);

}  // namespace
}  // namespace leapquant::conformance
