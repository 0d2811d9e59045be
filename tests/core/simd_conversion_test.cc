// SPDX-License-Identifier: Apache-2.0
//
// fp16 conversions of the SIMD body, over every code value on every instruction set: through a flush of one program
// whose state is its first key factor.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>

#include "cpu/flush_kernel.h"

namespace leapquant::cpu {
namespace {

struct Program {
  std::vector<int8_t> codes = std::vector<int8_t>(16384, 0);
  std::vector<float> key_scale = std::vector<float>(128, 1.0f);
  std::vector<float> value_scale = std::vector<float>(128, 1.0f);
  std::vector<Half> key_factor = std::vector<Half>(128, Half{0});
  std::vector<Half> value_factor = std::vector<Half>(128, Half{0});
  std::vector<Bfloat16> window_key = std::vector<Bfloat16>(2048, Bfloat16{0});
  std::vector<Bfloat16> window_update = std::vector<Bfloat16>(2048, Bfloat16{0});
  std::vector<float> window_weight = std::vector<float>(16, 0.0f);
  std::vector<Half> window_gate = std::vector<Half>(2048, Half{kHalfOne});
  std::vector<float> log_decay = std::vector<float>(128, 0.0f);

  CheckpointProgram checkpoint() {
    return {codes.data(), key_scale.data(), value_scale.data(), key_factor.data(), value_factor.data(), 128, 128};
  }
  WindowProgram window() {
    return {window_key.data(),  window_update.data(), window_weight.data(),
            window_gate.data(), log_decay.data(),     nullptr};
  }
};

// Without factors to subtract, the column scales show the decoded key factor: s_k' = sqrt(|u| / 128).
TEST(SimdConversion, EveryHalfDecodesToItsValue) {
  const std::vector<float> no_basis(128, 0.0f);
  const auto workspace = std::make_unique<FlushWorkspace>();
  for (const Target& target : usable_targets()) {
    const FlushKernel kernel = flush_kernel_of(target, 1);
    kernel.prepare_start(no_basis.data(), *workspace);
    for (uint32_t first = 0; first < 0x10000; first += 128) {
      if ((first & 0x7C00) == 0x7C00) continue;  // Inf and NaN: see the containment tests
      Program source;
      Program result;
      source.value_factor[0] = Half{kHalfOne};
      for (uint32_t k = 0; k < 128; ++k) source.key_factor[k] = Half{static_cast<uint16_t>(first + k)};
      ASSERT_TRUE(kernel.flush(Gate::kKda, source.checkpoint(), source.window(), result.checkpoint(), *workspace));
      for (uint32_t k = 0; k < 128; ++k) {
        const float scale = std::sqrt(std::fabs(to_float(source.key_factor[k])) / 128.0f);
        ASSERT_EQ(result.key_scale[k], std::max(scale, kScaleFloor)) << target.name << " " << first + k;
      }
    }
  }
}

// A state with one row has that row as its key factor: rounded to the nearest half, from subnormals to the range's end.
TEST(SimdConversion, FactorsRoundToTheNearestHalf) {
  std::vector<float> start(128, 0.0f);
  start[0] = 1.0f;
  const auto workspace = std::make_unique<FlushWorkspace>();
  std::mt19937 random(3);
  std::uniform_real_distribution<float> exponent(-23.0f, 15.9f);
  for (const Target& target : usable_targets()) {
    const FlushKernel kernel = flush_kernel_of(target, 1);
    kernel.prepare_start(start.data(), *workspace);
    for (int round = 0; round < 200; ++round) {
      Program source;
      Program result;
      std::fill_n(source.codes.begin(), 128, int8_t{127});
      const float middle = exponent(random);
      for (float& scale : source.key_scale) scale = std::exp2(middle + exponent(random) * 0.01f);
      ASSERT_TRUE(kernel.flush(Gate::kKda, source.checkpoint(), source.window(), result.checkpoint(), *workspace));
      ASSERT_EQ(std::fabs(to_float(result.value_factor[0])), 1.0f);
      for (size_t k = 0; k < 128; ++k) {
        const float expected = std::min(source.key_scale[k], kHalfMax);
        const float step = std::max(std::exp2(std::floor(std::log2(expected)) - 10.0f), 0x1p-24f);
        ASSERT_NEAR(std::fabs(to_float(result.key_factor[k])), expected, 0.5f * step + expected * 1e-6f)
            << target.name << " " << expected;
      }
    }
  }
}

}  // namespace
}  // namespace leapquant::cpu
