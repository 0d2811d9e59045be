// SPDX-License-Identifier: Apache-2.0
//
// `leapquant verify` and `leapquant bench`: their JSON records, exit codes, definitions and workloads.
#include "judge/verify.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "judge/verify_step.h"
#include "program.h"

namespace leapquant::cli {
namespace {

using nlohmann::json;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

void expect_keys(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) EXPECT_TRUE(object.contains(key)) << key << " in " << object;
}

std::string workload(int batch) {
  return R"({"definition": "leapquant_kda_flush_r4_int8_h32_v128_k128", "workload": {"uuid": "x", "axes": )"
         R"({"batch_size": )" +
         std::to_string(batch) + "}}}\n";
}

TEST(Verify, WritesTheFiguresThatTheLibraryGives) {
  const Outcome run = run_program({"verify", "--heads", "2", "--rank", "1", "--batch", "1,3", "--family",
                                   "structured,trained", "--seed", "5", "--backend", "ref", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json record = json::parse(run.out);
  EXPECT_EQ(record["backend"], "ref");
  EXPECT_EQ(record["gate"], "kda");
  ASSERT_EQ(record["results"].size(), 4u);
  for (const json& row : record["results"]) {
    expect_keys(row, {"family", "batch", "heads", "rank", "programs", "worst_ratio", "averaged_ratio", "over", "finite",
                      "verdict"});
  }
  const json& row = record["results"][1];
  const judge::FamilyRequest request = {
      .geometry = {.num_heads = 2, .num_key_heads = 2, .rank = 1}, .batch = 3, .seed = 5};
  const Result<judge::Judgement> judged = judge::verify_flush(Context("ref"), request);
  ASSERT_TRUE(judged.ok()) << judged.status().message();
  EXPECT_EQ(row["family"], "structured");
  EXPECT_EQ(row["batch"], 3);
  EXPECT_EQ(row["programs"], 6);
  EXPECT_EQ(row["worst_ratio"], judged.value().worst_ratio);
  EXPECT_EQ(row["averaged_ratio"], judged.value().averaged_ratio);
  EXPECT_EQ(row["over"], 0);
  EXPECT_EQ(row["finite"], true);
  EXPECT_EQ(row["verdict"], "pass");
}

TEST(Verify, TakesSeedsUntilEnoughProgramsAreJudged) {
  const Outcome run = run_program({"verify", "--heads", "1", "--batch", "2,1", "--family", "random,structured",
                                   "--seed", "5", "--programs", "13", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json record = json::parse(run.out);
  EXPECT_EQ(record["seed"], 5);
  EXPECT_EQ(record["seeds"], 3);
  EXPECT_EQ(record["programs"], 18);
  EXPECT_EQ(record["over"], 0);
  ASSERT_EQ(record["results"].size(), 4u);
  const json& row = record["results"][0];
  EXPECT_EQ(row["programs"], 6);
  double worst = 0;
  uint64_t worst_seed = 0;
  for (const uint64_t seed : {5, 6, 7}) {
    const judge::FamilyRequest request = {
        .geometry = {.num_heads = 1, .num_key_heads = 1}, .family = judge::Family::kRandom, .batch = 2, .seed = seed};
    const double ratio = judge::verify_flush(Context(), request).value().worst_ratio;
    if (ratio > worst) worst_seed = seed;
    worst = std::max(worst, ratio);
  }
  EXPECT_EQ(row["worst_ratio"], worst);
  EXPECT_EQ(row["worst_seed"], worst_seed);
  expect_failure(run_program({"verify", "--programs", "-1"}), 2, {"--programs"});
}

TEST(Verify, JudgesTheStep) {
  const Outcome run =
      run_program({"verify", "--op", "step", "--heads", "2", "--rank", "1", "--batch", "1,3", "--family", "next,random",
                   "--gate-function", "bounded,given", "--backend", "ref", "--seed", "5", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json record = json::parse(run.out);
  EXPECT_EQ(record["op"], "step");
  EXPECT_EQ(record["over"], 0);
  EXPECT_EQ(record["programs"], 32);
  ASSERT_EQ(record["results"].size(), 8u);
  const json& row = record["results"][3];
  expect_keys(row, {"family", "gate_function", "batch", "heads", "rank", "programs", "worst", "over", "elements_over",
                    "finite", "verdict"});
  const judge::StepRequest request = {.geometry = {.num_heads = 2, .num_key_heads = 2, .rank = 1},
                                      .family = judge::StepFamily::kNext,
                                      .batch = 3,
                                      .seed = 5,
                                      .gate = {GateFunction::kGiven}};
  const Result<judge::StepJudgement> judged = judge::verify_step(Context("ref"), request);
  ASSERT_TRUE(judged.ok()) << judged.status().message();
  EXPECT_EQ(row["family"], "next");
  EXPECT_EQ(row["gate_function"], "given");
  EXPECT_EQ(row["batch"], 3);
  EXPECT_EQ(row["worst"]["o"], judged.value().worst[0]);
  EXPECT_EQ(row["verdict"], "pass");
}

TEST(Verify, PrintsATableOfTheStep) {
  expect_success(
      run_program({"verify", "--op", "step", "--heads", "1", "--batch", "1", "--family", "random", "--backend", "ref"}),
      {"pcum_new", "softplus", "bounded", "pass", "0 over the bound"});
  expect_failure(run_program({"verify", "--op", "step", "--family", "trained"}), 2, {"trained", "structured, next"});
  expect_failure(run_program({"verify", "--op", "step", "--gate-function", "relu"}), 2, {"relu", "bounded"});
  expect_failure(run_program({"verify", "--op", "jump"}), 2, {"--op", "jump"});
}

TEST(Verify, JudgesTheScalarGatesStep) {
  const Outcome run =
      run_program({"verify", "--op", "step", "--gate", "gdn", "--heads", "4", "--key-heads", "2", "--batch", "2",
                   "--family", "structured", "--gate-function", "bounded", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json row = json::parse(run.out)["results"][0];
  EXPECT_EQ(row["key_heads"], 2);
  EXPECT_EQ(row["programs"], 8);
  EXPECT_EQ(row["verdict"], "pass");
  EXPECT_TRUE(row["worst"].contains("p_new") && !row["worst"].contains("pcum_new"));
  expect_failure(run_program({"verify", "--op", "step", "--gate", "gdn", "--heads", "4", "--key-heads", "3"}), 2,
                 {"num_key_heads", "got 3"});
}

// A build without the backend has no such name, a machine without a device no device.
TEST(Verify, ABackendThatCannotRunHereIsRefused) {
  for (const lq_backend_info& backend : backends()) {
    if (backend.device == LQ_DEVICE_CUDA && backend.targets[0] != '\0') GTEST_SKIP() << "there is a device";
  }
  for (const char* command : {"verify", "bench", "report"}) {
    const Outcome run = run_program({command, "--backend", "cuda"});
    EXPECT_TRUE(run.code == 2 || run.code == 3) << run.code;
    expect_failure(run, run.code, {run.code == 2 ? "no backend 'cuda' in this build" : "device"});
  }
}

TEST(Verify, PrintsATableBesideAFile) {
  const io::TempDir dir;
  expect_success(run_program({"verify", "--heads", "1", "--batch", "1", "--family", "random", "--json", dir.file("x")}),
                 {"worst ratio", "random", "pass"});
  EXPECT_EQ(json::parse(io::read_bytes(dir.file("x")))["results"].size(), 1u);
}

TEST(Verify, TakesGeometryAndBatchesFromADefinition) {
  const io::TempDir dir;
  write_text(dir.file("w.jsonl"), workload(1) + workload(2));
  const Outcome run = run_program(
      {"verify", "--definition", kDefinition, "--workloads", dir.file("w.jsonl"), "--family", "random", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json results = json::parse(run.out)["results"];
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0]["heads"], 32);
  EXPECT_EQ(results[0]["rank"], 4);
  EXPECT_EQ(results[1]["batch"], 2);
}

TEST(Verify, RefusesWhatItCannotJudge) {
  expect_failure(run_program({"verify", "--batch", "0"}), 2, {"--batch", "0"});
  expect_failure(run_program({"verify", "--batch", "1", "--heads", "0"}), 2, {"num_heads", "got 0"});
  expect_failure(run_program({"verify", "--batch", "1", "--gate", "gdn", "--family", "trained"}), 2,
                 {"trained", "gdn"});
  expect_failure(run_program({"verify", "--batch", "1", "--rank", "3"}), 2, {"rank", "1, 2, 4, 8", "got 3"});
  expect_failure(run_program({"verify", "--family", "sturctured"}), 2, {"sturctured", "structured"});
  expect_failure(run_program({"verify", "--data", "/missing", "--batch", "1", "--family", "trained"}), 2,
                 {"/missing", "No such file"});
  expect_failure(run_program({"verify", "--workloads", "w.jsonl"}), 2, {"--definition"});
  expect_failure(run_program({"verify", "--definition", kDefinition, "--heads", "4"}), 2, {"--heads"});
  const io::TempDir dir;
  write_text(dir.file("w.jsonl"), "\n");
  expect_failure(run_program({"verify", "--definition", kDefinition, "--workloads", dir.file("w.jsonl")}), 2,
                 {"workloads", "at least one"});
}

TEST(Verify, ReportsARecordThatCannotBeWritten) {
  expect_failure(run_program({"verify", "--heads", "1", "--batch", "1", "--family", "random", "--json", "/missing/x"}),
                 3, {"/missing/x"});
}

TEST(Bench, WritesItsRecord) {
  const io::TempDir dir;
  write_text(dir.file("w.jsonl"), workload(1));
  const Outcome run = run_program({"bench", "--definition", kDefinition, "--workloads", dir.file("w.jsonl"),
                                   "--threads", "1", "--due", "1/16,none", "--layout", "padded", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json record = json::parse(run.out);
  expect_keys(record, {"backend", "device", "commit", "limits", "results"});
  ASSERT_EQ(record["results"].size(), 2u);
  for (const json& row : record["results"]) {
    expect_keys(row, {"op", "gate", "batch", "heads", "rank", "layout", "due", "threads", "median_us", "min_us",
                      "max_us", "programs_per_s", "bytes", "fraction_of_limit"});
  }
  const json& none = record["results"][1];
  EXPECT_EQ(none["op"], "flush");
  EXPECT_EQ(none["gate"], "kda");
  EXPECT_EQ(none["batch"], 1);
  EXPECT_EQ(none["heads"], 32);
  EXPECT_EQ(none["layout"], "padded");
  EXPECT_EQ(none["due"], "none");
  EXPECT_EQ(none["threads"], 1);
  EXPECT_EQ(none["bytes"], 0);
}

TEST(Bench, ListsOfHeadsAndRanksAtOneNumberOfPrograms) {
  const Outcome run = run_program({"bench", "--programs", "8", "--heads", "1,3", "--rank", "1,2", "--layout",
                                   "compact,padded", "--due", "none", "--threads", "1", "--json", "-"});
  ASSERT_EQ(run.code, 0) << run.err;
  const json results = json::parse(run.out)["results"];
  ASSERT_EQ(results.size(), 8u);
  EXPECT_EQ(results[0]["heads"], 1);
  EXPECT_EQ(results[0]["batch"], 8);
  EXPECT_EQ(results[2]["rank"], 2);
  EXPECT_EQ(results[4]["heads"], 3);
  EXPECT_EQ(results[4]["batch"], 3);
  EXPECT_EQ(results[5]["layout"], "padded");
}

TEST(Bench, RefusesWrongGeometriesAndOptions) {
  expect_failure(run_program({"bench", "--batch", "0"}), 2, {"--batch"});
  expect_failure(run_program({"bench", "--due", "some"}), 2, {"--due", "1/16"});
  expect_failure(run_program({"bench", "--programs", "8", "--batch", "1"}), 2, {"--programs", "--batch"});
  expect_failure(run_program({"bench", "--programs", "0"}), 2, {"--programs"});
  expect_failure(run_program({"bench", "--backend", "tpu", "--batch", "1"}), 2, {"no backend 'tpu'"});
  expect_failure(run_program({"bench", "--heads", "0", "--batch", "1"}), 2, {"num_heads", "got 0"});
  expect_failure(run_program({"bench", "--rank", "3", "--batch", "1"}), 2, {"cpu", "rank", "got 3"});
}

}  // namespace
}  // namespace leapquant::cli
