// SPDX-License-Identifier: Apache-2.0
//
// Definitions and workloads: ours parse and agree with the default geometry, and every way to get one wrong is named.
#include "io/definition.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <nlohmann/json.hpp>

#include "temp_dir.h"

namespace leapquant::io {
namespace {

using nlohmann::json;

// What a gate's definition and workloads are called, and what its reference takes.
struct Shipped {
  Gate gate;
  const char* name;
  const char* run;
};
constexpr Shipped kShipped[] = {{Gate::kKda, "leapquant_kda_flush_r4_int8_h32_v128_k128",
                                 "\ndef run(codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0):\n"},
                                {Gate::kGdn, "leapquant_gdn_flush_r4_int8_h32_v128_k128",
                                 "\ndef run(codes, s_k, s_v, u, q, kbuf, ubuf, w, p, q0):\n"}};

std::string definition_of(const Shipped& shipped) {
  return std::string(LQ_DATA_DIR "/definitions/") + shipped.name + ".json";
}
std::string workloads_of(const Shipped& shipped) {
  return std::string(LQ_DATA_DIR "/workloads/") + shipped.name + ".jsonl";
}
std::string shipped_definition() { return definition_of(kShipped[0]); }

TEST(ShippedDefinition, IsTheDefaultGeometry) {
  for (const Shipped& shipped : kShipped) {
    const Result<Definition> definition = load_definition(definition_of(shipped));
    ASSERT_TRUE(definition.ok()) << definition.status().message();
    EXPECT_EQ(definition.value().name, shipped.name);
    EXPECT_EQ(definition.value().constraints, std::vector<std::string>{"batch_size >= 1"});
    EXPECT_NE(definition.value().reference.find(shipped.run), std::string::npos);
    EXPECT_EQ(definition.value().axes.at("batch_size"), std::nullopt);
    const Result<Geometry> geometry = definition_geometry(definition.value());
    ASSERT_TRUE(geometry.ok()) << geometry.status().message();
    EXPECT_EQ(geometry.value(), Geometry{.gate = shipped.gate});
  }
}

TEST(ShippedWorkloads, AreTheSixBatches) {
  for (const Shipped& shipped : kShipped) {
    const Result<Definition> definition = load_definition(definition_of(shipped));
    const Result<std::vector<Workload>> workloads = load_workloads(workloads_of(shipped));
    ASSERT_TRUE(definition.ok() && workloads.ok());
    const Result<std::vector<int64_t>> batches = workload_batches(workloads.value(), definition.value());
    ASSERT_TRUE(batches.ok()) << batches.status().message();
    EXPECT_EQ(batches.value(), (std::vector<int64_t>{16, 32, 64, 128, 256, 512}));
  }
}

json shipped_json() { return json::parse(read_bytes(shipped_definition())); }

// The first refusal of a definition: of its schema, or of its geometry.
Status refusal_of(const json& object) {
  const Result<Definition> definition = parse_definition(object.dump());
  return definition.ok() ? definition_geometry(definition.value()).status() : definition.status();
}

template <class Change>
void expect_refused(Change change, std::initializer_list<const char*> parts) {
  json object = shipped_json();
  change(object);
  expect_refusal(refusal_of(object), parts);
}

TEST(Definition, GeometryFollowsTheAxes) {
  json object = shipped_json();
  object["axes"]["num_heads"]["value"] = 12;
  object["axes"]["rank"]["value"] = 8;
  const Result<Geometry> geometry = definition_geometry(parse_definition(object.dump()).value());
  ASSERT_TRUE(geometry.ok());
  EXPECT_EQ(geometry.value(), (Geometry{.num_heads = 12, .num_key_heads = 12, .rank = 8}));
}

TEST(Definition, GateFollowsTheOperation) {
  json object = shipped_json();
  object["op_type"] = "leapquant_gdn_flush";
  expect_refusal(refusal_of(object), {"inputs: 'p'"});
  object["inputs"].erase("gbuf");
  object["inputs"].erase("pcum");
  object["inputs"]["p"] = {{"dtype", "float32"}, {"shape", {"batch_size", "num_heads"}}};
  const Result<Geometry> geometry = definition_geometry(parse_definition(object.dump()).value());
  ASSERT_TRUE(geometry.ok()) << geometry.status().message();
  EXPECT_EQ(geometry.value().gate, Gate::kGdn);
}

TEST(Definition, RefusalsNameTheField) {
  expect_refused([](json& o) { o.erase("name"); }, {"name: expected a string, found nothing"});
  expect_refused([](json& o) { o["name"] = 1; }, {"name: expected a string, found number"});
  expect_refused([](json& o) { o["op_type"] = "gemm"; }, {"op_type: expected leapquant_kda_flush", "found 'gemm'"});
  expect_refused([](json& o) { o["description"] = {}; }, {"description: expected a string"});
  expect_refused([](json& o) { o["axes"] = 3; }, {"axes: expected an object"});
  expect_refused([](json& o) { o["axes"]["rank"] = 4; }, {"axes: 'rank': expected an object, found number"});
  expect_refused([](json& o) { o["axes"]["rank"]["type"] = "let"; }, {"'rank': type: expected 'const' or 'var'"});
  expect_refused([](json& o) { o["axes"]["rank"].erase("value"); }, {"'rank': value", "found nothing"});
  expect_refused([](json& o) { o["axes"]["rank"]["value"] = 0; },
                 {"'rank': value: expected an integer of at least 1, found 0"});
  expect_refused([](json& o) { o["axes"]["rank"]["value"] = -4; }, {"'rank'", "found -4"});
  expect_refused([](json& o) { o["axes"]["rank"]["value"] = 1.5; }, {"'rank'", "found 1.5"});
  expect_refused([](json& o) { o["axes"]["rank"]["value"] = UINT64_MAX; }, {"'rank'", "found 18446744073709551615"});
  expect_refused([](json& o) { o["axes"]["rank"]["value"] = 1LL << 40; }, {"rank", "found 1099511627776"});
  expect_refused([](json& o) { o["axes"]["rank"]["value"] = 5000; }, {"rank", "between 1 and 4096", "5000"});
  expect_refused(
      [](json& o) {
        o["axes"]["rank"] = {{"type", "var"}};
      },
      {"axes: 'rank': expected a const axis, found a var axis"});
  expect_refused([](json& o) { o["inputs"].erase("q0"); }, {"inputs: 'q0': expected a tensor, found nothing"});
  expect_refused([](json& o) { o["inputs"]["codes"]["dtype"] = "int4"; },
                 {"inputs: 'codes': dtype: expected int8, found 'int4'"});
  expect_refused([](json& o) { o["inputs"]["u"]["shape"][2] = "window"; },
                 {"inputs: 'u': shape: expected batch_size, num_heads, rank, key_dim"});
  expect_refused([](json& o) { o["inputs"]["u"]["shape"][2] = "ranks"; }, {"inputs: 'u': shape", "found 'ranks'"});
  expect_refused([](json& o) { o["inputs"]["u"]["shape"][2] = 4; },
                 {"inputs: 'u': shape: expected an array of strings"});
  expect_refused([](json& o) { o["inputs"]["more"] = o["inputs"]["w"]; }, {"inputs: expected 11 tensors, found 12"});
  expect_refused([](json& o) { o["outputs"].erase("u_new"); }, {"outputs: 'u_new'"});
  expect_refused([](json& o) { o.erase("reference"); }, {"reference: expected a string"});
  expect_refused([](json& o) { o["constraints"] = {1}; }, {"constraints: expected an array of strings"});
}

TEST(Definition, RefusesTextThatIsNoDefinition) {
  expect_refusal(parse_definition("").status(), {"parse error"});
  expect_refusal(parse_definition("[]").status(), {"expected an object, found array"});
  expect_refusal(parse_definition("{\"name\":\"a\",\"name\":\"b\"}").status(), {"'name' twice"});
  expect_refusal(parse_definition("{\"name\":\"\xFF\"}").status(), {"UTF-8", "0xFF at offset 9"});
  expect_refusal(parse_definition("{\"name\":1e999}").status(), {"number overflow"});
  expect_refusal(load_definition("/missing").status(), {"/missing", "No such file"});
}

TEST(Definition, RefusesANestingBomb) {
  const TempDir dir;
  const std::string bomb(100'000, '[');
  expect_refusal(load_definition(dir.write("x", bomb)).status(),
                 {"nesting depth: expected at most 64 levels, found 100000"});
  expect_refusal(load_workloads(dir.write("x", "\n" + bomb)).status(), {"line 2", "found 100000"});
  // Brackets inside strings nest nothing.
  expect_refusal(parse_definition("{\"name\":\"\\\"" + bomb + "\"}").status(), {"op_type"});
}

TEST(Definition, RefusesAHugeFile) {
  const TempDir dir;
  const std::string path = dir.write("x", "{");
  std::filesystem::resize_file(path, uint64_t{1} << 40);
  expect_refusal(load_definition(path).status(), {"file size: expected at most 16777216 bytes, found 1099511627776"});
}

Status workloads_refusal(const std::string& text) {
  const Result<std::vector<Workload>> workloads = parse_workloads(text);
  if (!workloads.ok()) return workloads.status();
  return workload_batches(workloads.value(), load_definition(shipped_definition()).value()).status();
}

std::string workload_line(const std::string& definition, const std::string& axes) {
  return R"({"definition":")" + definition + R"(","workload":{"uuid":"one","axes":)" + axes + "}}\n";
}

TEST(Workloads, RefusalsNameTheLineAndTheField) {
  const std::string good = workload_line(kShipped[0].name, R"({"batch_size":3,"rank":4})");
  EXPECT_TRUE(workloads_refusal(good + "\n  \r\n" + good).ok());
  expect_refusal(workloads_refusal(good + "{"), {"line 2", "parse error"});
  expect_refusal(workloads_refusal(good + "\n7"), {"line 3: workload: expected an object, found number"});
  expect_refusal(workloads_refusal(R"({"workload":{}})"), {"line 1: definition"});
  expect_refusal(workloads_refusal(workload_line(kShipped[0].name, R"({"batch_size":0})")),
                 {"line 1", "'batch_size'", "found 0"});
  expect_refusal(workloads_refusal(workload_line(kShipped[0].name, R"({"batch_size":"16"})")),
                 {"'batch_size'", "found string"});
  expect_refusal(workloads_refusal(workload_line(kShipped[0].name, "{}")), {"workload 'one': axes: 'batch_size'"});
  expect_refusal(workloads_refusal(workload_line(kShipped[0].name, R"({"batch_size":1,"depth":2})")),
                 {"'one'", "found 'depth'"});
  expect_refusal(workloads_refusal(workload_line(kShipped[0].name, R"({"batch_size":1,"rank":8})")),
                 {"'rank': expected 4, found 8"});
  expect_refusal(workloads_refusal(workload_line("other", R"({"batch_size":1})")), {"expected '", "found 'other'"});
}

RC_GTEST_PROP(DefinitionProperty, CorruptionNeverCrashes, ()) {
  std::string text = read_bytes(shipped_definition());
  const auto place = *rc::gen::inRange<size_t>(0, text.size());
  text[place] = static_cast<char>(*rc::gen::arbitrary<uint8_t>());
  const Result<Definition> definition = parse_definition(text);
  if (!definition.ok()) return;
  const Result<Geometry> geometry = definition_geometry(definition.value());
  if (geometry.ok()) RC_ASSERT(check_geometry(geometry.value()).ok());
}

}  // namespace
}  // namespace leapquant::io
