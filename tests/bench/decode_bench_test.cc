// SPDX-License-Identifier: Apache-2.0
//
// What a step is measured against, and its record. Nothing here is timed.
#include "bench/decode_bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "bench/dense_decode.h"
#include "judge/dense_recurrence.h"
#include "judge/drift_tokens.h"
#include "judge/step_tensors.h"

namespace leapquant::bench {
namespace {

// Decoding with fp32 states is the recurrence, on every instruction set and any number of threads.
class DenseDecodeTest : public testing::TestWithParam<Gate> {};

TEST_P(DenseDecodeTest, IsTheRecurrence) {
  constexpr int64_t kHeads = 3;
  constexpr int64_t kPrograms = 2 * kHeads;
  Geometry geometry;
  geometry.gate = GetParam();
  geometry.num_heads = geometry.num_key_heads = kHeads;
  const int64_t channels = geometry.gate_channels();
  for (const char* const target : {"avx512", "avx2", "ssse3", "no such name"}) {
    for (const int threads : {1, 2, 7}) {
      DenseDecode decode(target, geometry.gate, threads, kPrograms);
      std::vector<judge::DenseRecurrence<double>> exact(kPrograms, judge::DenseRecurrence<double>(geometry));
      std::vector<std::unique_ptr<judge::DriftTokens>> streams;
      for (int64_t n = 0; n < kPrograms; ++n)
        streams.push_back(judge::drawn_tokens(judge::kDriftDraws[0], 9, n % kHeads));
      judge::TokenTensors token(geometry, 2);
      std::vector<Bfloat16> output(kPrograms * 128);
      for (int t = 0; t < 40; ++t) {
        std::vector<std::vector<double>> wanted;
        for (int64_t n = 0; n < kPrograms; ++n) {
          const TokenProgram drawn = streams[static_cast<size_t>(n)]->next();
          std::copy_n(drawn.query, 128, token.qx.begin() + n * 128);
          std::copy_n(drawn.key, 128, token.kx.begin() + n * 128);
          std::copy_n(drawn.value, 128, token.vx.begin() + n * 128);
          std::copy_n(drawn.gate_input, channels, token.a.begin() + n * channels);
          std::copy_n(drawn.gate_bias, channels, token.dt_bias.begin() + n % kHeads * channels);
          token.A_log[static_cast<size_t>(n % kHeads)] = *drawn.log_rate;
          token.b[static_cast<size_t>(n)] = *drawn.beta_input;
          wanted.push_back(exact[static_cast<size_t>(n)].step(drawn));
        }
        decode.step(token.view(), kHeads, output.data());
        for (int64_t n = 0; n < kPrograms; ++n) {
          const std::vector<double>& row = wanted[static_cast<size_t>(n)];
          double largest = 0;
          for (const double value : row) largest = std::max(largest, std::abs(value));
          for (size_t v = 0; v < 128; ++v) {
            ASSERT_NEAR(to_float(output[static_cast<size_t>(n) * 128 + v]), row[v],
                        std::abs(row[v]) / 256 + 1e-5 * largest)
                << target << ", token " << t;
          }
        }
      }
      for (int64_t n = 0; n < kPrograms; ++n) {
        double difference = 0;
        double size = 0;
        for (int64_t i = 0; i < DenseDecode::kElements; ++i) {
          const double value = exact[static_cast<size_t>(n)].state()[static_cast<size_t>(i)];
          difference += std::pow(decode.state(n)[i] - value, 2);
          size += value * value;
        }
        EXPECT_LT(std::sqrt(difference / size), 1e-6) << target;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gates, DenseDecodeTest, testing::Values(Gate::kKda, Gate::kGdn),
                         [](const auto& info) { return std::string(gate_name(info.param)); });

TEST(DecodeBench, BytesAreThoseOfTheFormat) {
  const lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  // Checkpoint 19,456, token 1,026, log-decay, weights and counter 580, 7.5 of 16 entries of 768 bytes; written: output
  // 256, an entry, log-decay 512, weight and counter 8; a sixteenth of a flush of 56,448.
  EXPECT_EQ(decode_program_bytes(geometry), 19456 + 1026 + 580 + 5760 + 256 + 768 + 512 + 8 + 56448 / 16);
  EXPECT_EQ(dense_program_bytes(geometry), 2 * 65536 + 1026 + 256);
}

TEST(DecodeBench, ARecordHoldsBothSides) {
  DecodeRecord record;
  record.backend = "cpu";
  record.limits = {{2, {.memory_bytes_per_s = 3e9, .read_bytes_per_s = 4e9, .last_level_cache_bytes = 5}}};
  record.results = {{{.batch = 8}, 2, {{10, 9, 12}, {30, 29, 33}, 20000, 80000, 7}}};
  const nlohmann::ordered_json json = to_json(record);
  EXPECT_EQ(json["limits"]["by_threads"][0]["read_bytes_per_s"], 4e9);
  const nlohmann::ordered_json& row = json["results"][0];
  EXPECT_EQ(row["op"], "step");
  EXPECT_EQ(row["cycle_tokens"], 16);
  EXPECT_EQ(row["median_us"], 10);
  EXPECT_EQ(row["fp32_median_us"], 30);
  EXPECT_EQ(row["speedup"], 3);
  EXPECT_EQ(row["fraction_of_read_limit"], 0.5);
}

TEST(DecodeBench, RefusesWhatTheBackendLacks) {
  lq_geometry odd = lq_geometry_default(LQ_GATE_KDA);
  odd.window = 8;
  EXPECT_THROW(run_decodes({"cpu", {1}, {{.geometry = odd}}}, [](double) {}), Error);
}

}  // namespace
}  // namespace leapquant::bench
