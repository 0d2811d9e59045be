// SPDX-License-Identifier: Apache-2.0
//
// `leapquant drift` and `leapquant bench --op step`: their JSON records and what they refuse.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace leapquant::cli {
namespace {

using nlohmann::json;

TEST(DriftCommand, WritesARecord) {
  const Outcome run = run_program({"drift", "--tokens", "70", "--interval", "32", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json record = json::parse(run.out);
  EXPECT_EQ(record["op"], "drift");
  EXPECT_EQ(record["tokens"], 70);
  EXPECT_EQ(record["positions"], json({32, 64}));
  for (const char* const key : {"backend", "target", "commit", "date", "command", "seed"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  ASSERT_EQ(record["profiles"].size(), 6u);
  for (const json& profile : record["profiles"]) {
    for (const json& state : profile["states"]) {
      EXPECT_EQ(state["state_error"].size(), 2u);
      EXPECT_EQ(state["output_error"].size(), 2u);
    }
  }
  EXPECT_EQ(record["profiles"][0]["states"][0]["bytes_per_head"], 19456 + 12868);
}

TEST(DriftCommand, PrintsATable) {
  const Outcome run = run_program({"drift", "--tokens", "16", "--interval", "16", "--backend", "ref"});
  ASSERT_EQ(run.code, 0) << run.err;
  for (const char* const part : {"initialised", "trained", "leapquant", "int8", "out, late"}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << part;
  }
}

TEST(DriftCommand, RefusesWrongOptions) {
  expect_failure(run_program({"drift", "--tokens", "0"}), 2, {"--tokens"});
  expect_failure(run_program({"drift", "--tokens", "8", "--interval", "16"}), 2, {"8 tokens in intervals of 16"});
  expect_failure(run_program({"drift", "--backend", "none"}), 2, {"none"});
}

TEST(StepBenchCommand, WritesARecord) {
  const Outcome run = run_program(
      {"bench", "--op", "step", "--batch", "1", "--heads", "1,2", "--rank", "8", "--threads", "1", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json record = json::parse(run.out);
  ASSERT_EQ(record["results"].size(), 2u);
  const json& row = record["results"][1];
  EXPECT_EQ(row["op"], "step");
  EXPECT_EQ(row["heads"], 2);
  EXPECT_EQ(row["cycle_tokens"], 16);
  EXPECT_GT(row["median_us"], 0);
  EXPECT_GT(row["fp32_median_us"], 0);
  EXPECT_GT(record["limits"]["by_threads"][0]["read_bytes_per_s"], 0);
}

TEST(StepBenchCommand, RefusesWhatAStepDoesNotHave) {
  expect_failure(run_program({"bench", "--op", "fly"}), 2, {"--op"});
  expect_failure(run_program({"bench", "--op", "step", "--due", "all"}), 2, {"--op step", "--due"});
  expect_failure(run_program({"bench", "--op", "step", "--gate", "gdn", "--key-heads", "3"}), 2,
                 {"num_key_heads", "3"});
}

}  // namespace
}  // namespace leapquant::cli
