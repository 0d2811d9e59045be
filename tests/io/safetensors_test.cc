// SPDX-License-Identifier: Apache-2.0
//
// The safetensors reader and writer: what is read, what is refused and in which words, and that a refusal is cheap.
#include "io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <set>

#include "raw_file.h"
#include "temp_dir.h"

namespace leapquant::io {
namespace {

const std::string kPair = entry("a", "F32", "[2]", 0, 8) + "," + entry("b", "I8", "[3]", 8, 11);
const std::string kPairData(11, '\1');

struct Refusal {
  const char* name;
  std::string bytes;
  std::vector<const char*> parts;  // of the error's text
};

std::vector<Refusal> refusals() {
  const std::string one = entry("codes", "I8", "[4]", 0, 4);
  return {
      {"empty", "", {"at least 8 bytes", "found 0"}},
      {"short", "1234567", {"at least 8 bytes", "found 7"}},
      {"length_wraps", length_prefix(UINT64_MAX - 4) + "{}", {"header length", "18446744073709551611"}},
      {"length_over_limit", length_prefix(100'000'001) + "{}", {"at most 100000000", "found 100000001"}},
      {"length_beyond_file", length_prefix(3) + "{}", {"header length: expected at most 2", "found 3"}},
      {"no_header", raw_file(""), {"begin with '{'"}},
      {"leading_space", raw_file(" {}"), {"begin with '{'"}},
      {"array", raw_file("[]"), {"begin with '{'"}},
      {"not_json", raw_file("{]"), {"header: parse error"}},
      {"trailing_text", raw_file("{}x"), {"header: parse error"}},
      {"unfinished", raw_file("{" + one, "1234"), {"header: parse error"}},
      {"invalid_utf8", raw_file("{" + entry("\xFF", "I8", "[1]", 0, 1) + "}", "1"), {"UTF-8", "0xFF at offset 2"}},
      {"overlong_utf8", raw_file("{" + entry("\xC0\x80", "I8", "[1]", 0, 1) + "}", "1"), {"UTF-8", "0xC0"}},
      {"surrogate", raw_file("{" + entry("\xED\xA0\x80", "I8", "[1]", 0, 1) + "}", "1"), {"UTF-8", "0xED"}},
      {"nesting_bomb", raw_file("{\"a\":" + std::string(100'000, '[')), {"nesting depth", "at most 3", "100001"}},
      {"size_lies",
       raw_file("{" + entry("a", "F32", "[1000,1000]", 0, 4) + "}", "1234"),
       {"'a'", "expected 4000000 bytes for F32 [1000, 1000]", "found 4 in [0, 4]"}},
      {"key_twice", raw_file("{" + one + "," + one + "}", "1234"), {"'codes' twice"}},
      {"field_twice",
       raw_file(R"({"a":{"dtype":"I8","dtype":"I8","shape":[0],"data_offsets":[0,0]}})"),
       {"tensor 'a'", "'dtype' twice"}},
      {"overlap",
       raw_file("{" + entry("a", "I8", "[4]", 0, 4) + "," + entry("b", "I8", "[4]", 2, 6) + "}", "123456"),
       {"'b' overlaps tensor 'a'", "expected it to begin at byte 4, found 2"}},
      {"same_place",
       raw_file("{" + entry("a", "I8", "[4]", 0, 4) + "," + entry("b", "I8", "[4]", 0, 4) + "}", "1234"),
       {"overlaps"}},
      {"hole",
       raw_file("{" + entry("a", "I8", "[4]", 0, 4) + "," + entry("b", "I8", "[4]", 12, 16) + "}",
                std::string(16, '1')),
       {"hole of 8 bytes", "'a'", "'b'"}},
      {"hole_in_front",
       raw_file("{" + entry("a", "I8", "[4]", 8, 12) + "}", std::string(12, '1')),
       {"hole of 8 bytes between the header and tensor 'a'"}},
      {"one_byte_more", raw_file("{" + kPair + "}", kPairData + "1"), {"expected 11 bytes", "found 12: 1 too many"}},
      {"one_byte_less", raw_file("{" + kPair + "}", kPairData.substr(1)), {"expected 11 bytes", "found 10: 1 too few"}},
      {"data_without_tensors", raw_file("{}", "1"), {"expected 0 bytes", "1 too many"}},
      {"negative_extent", raw_file("{" + entry("a", "I8", "[-4]", 0, 4) + "}", "1234"), {"shape", "found -4"}},
      {"fractional_extent", raw_file("{" + entry("a", "I8", "[4.0]", 0, 4) + "}", "1234"), {"shape", "found 4.0"}},
      {"extent_over_63_bits",
       raw_file("{" + entry("a", "I8", "[18446744073709551615]", 0, 4) + "}", "1234"),
       {"shape", "18446744073709551615"}},
      {"extent_over_64_bits",
       raw_file("{" + entry("a", "I8", "[18446744073709551616]", 0, 4) + "}", "1234"),
       {"shape", "18446744073709551616"}},
      {"size_overflows",
       raw_file("{" + entry("a", "F32", "[4294967296,4294967296]", 0, 0) + "}"),
       {"'a'", "below 2^64 bytes", "[4294967296, 4294967296]"}},
      {"too_many_dimensions",
       raw_file("{" +
                    entry(
                        "a", "I8",
                        "[1" +
                            [] {
                              std::string ones;
                              for (int i = 0; i < 64; ++i) ones += ",1";
                              return ones;
                            }() +
                            "]",
                        0, 1) +
                    "}",
                "1"),
       {"at most 64 dimensions"}},
      {"offsets_reversed", raw_file("{" + entry("a", "I8", "[4]", 4, 0) + "}", "1234"), {"begin <= end", "[4, 0]"}},
      {"three_offsets",
       raw_file(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1,2]}})", "1"),
       {"data_offsets: expected 2 integers, found more"}},
      {"one_offset",
       raw_file(R"({"a":{"dtype":"I8","shape":[1],"data_offsets":[0]}})", "1"),
       {"data_offsets: expected 2 integers, found 1"}},
      {"field_missing", raw_file(R"({"a":{"dtype":"I8","shape":[1]}})", "1"), {"'a'", "data_offsets is missing"}},
      {"field_unknown", raw_file(R"({"a":{"dtype":"I8","offset":1}})", "1"), {"'a'", "found 'offset'"}},
      {"dtype_is_number", raw_file(R"({"a":{"dtype":8}})"), {"dtype: expected a string, found 8"}},
      {"dtype_is_array", raw_file(R"({"a":{"dtype":[]}})"), {"dtype: expected a string, found an array"}},
      {"shape_is_string", raw_file(R"({"a":{"shape":"x"}})"), {"shape: expected an array of integers"}},
      {"shape_is_null", raw_file(R"({"a":{"shape":null}})"), {"shape: expected an array of integers, found null"}},
      {"tensor_is_bool", raw_file(R"({"a":true})"), {"'a': expected an object, found a boolean"}},
      {"metadata_is_string", raw_file(R"({"__metadata__":"x"})"), {"__metadata__: expected an object"}},
      {"metadata_value_is_number", raw_file(R"({"__metadata__":{"k":1}})"), {"'k': expected a string, found 1"}},
      {"metadata_value_is_object",
       raw_file(R"({"__metadata__":{"k":{}}})"),
       {"'k': expected a string, found an object"}},
      {"metadata_twice", raw_file(R"({"__metadata__":{},"__metadata__":{}})"), {"'__metadata__' twice"}},
      {"metadata_key_twice", raw_file(R"({"__metadata__":{"k":"","k":""}})"), {"__metadata__", "'k' twice"}},
      {"control_characters", raw_file(R"({"\u001b[2J":1})"), {"'\\x1B[2J'"}},
  };
}

Status open_status(const std::string& path) { return SafetensorsFile::open(path).status(); }

TEST(SafetensorsRefusals, NameWhatIsWrong) {
  const TempDir dir;
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.name);
    const Status status = open_status(dir.write("x", refusal.bytes));
    ASSERT_FALSE(status.ok());
    for (const char* part : refusal.parts)
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    EXPECT_NE(status.message().find(dir.file("x")), std::string::npos) << status.message();
  }
}

// A reader who sees only the text can tell the published kinds of lie from one another.
TEST(SafetensorsRefusals, AreDistinct) {
  const TempDir dir;
  const std::set<std::string> kinds = {"length_wraps", "length_over_limit", "size_lies",
                                       "key_twice",    "invalid_utf8",      "overlap",
                                       "hole",         "one_byte_more",     "one_byte_less"};
  std::set<std::string> texts;
  for (const Refusal& refusal : refusals()) {
    if (kinds.count(refusal.name) > 0) texts.insert(open_status(dir.write("x", refusal.bytes)).message());
  }
  EXPECT_EQ(texts.size(), kinds.size());
}

TEST(SafetensorsRefusals, TakeLittleMemory) {
  const TempDir dir;
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const std::vector<Refusal> cases = refusals();
  std::vector<std::string> paths;
  for (const Refusal& refusal : cases) paths.push_back(dir.write(refusal.name, refusal.bytes));
  const int64_t before = peak_kib();
  for (const std::string& path : paths) EXPECT_FALSE(open_status(path).ok());
  EXPECT_LT(peak_kib() - before, 16 * 1024);
}

TEST(SafetensorsRefusals, CoverWhatIsNoFile) {
  const TempDir dir;
  expect_refusal(open_status(dir.file("missing")), {"missing", "No such file"});
  expect_refusal(open_status(dir.file(".")), {"regular file", "directory"});
  ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
  expect_refusal(open_status(dir.file("pipe")), {"regular file", "pipe"});
}

TEST(SafetensorsReader, TakesTensorsAtAnyOffset) {
  const TempDir dir;
  const float values[2] = {1.5f, -2.0f};
  const std::string data = "\7" + std::string(reinterpret_cast<const char*>(values), sizeof(values));
  const std::string header = "{" + entry("late", "F32", "[2]", 1, 9) + "," + entry("odd", "I8", "[1]", 0, 1) + "}  ";
  Result<SafetensorsFile> file = SafetensorsFile::open(dir.write("x", raw_file(header, data)));
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ(file.value().header().tensors.size(), 2u);
  EXPECT_EQ(file.value().header().tensors[0].name, "odd");
  const Result<std::vector<std::byte>> bytes = file.value().read(*file.value().header().find("late"));
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes.value().data()) % alignof(float), 0u);
  EXPECT_EQ(std::memcmp(bytes.value().data(), values, sizeof(values)), 0);
  EXPECT_EQ(file.value().header().find("absent"), nullptr);
}

TEST(SafetensorsReader, ListsTypesThatTheLibraryLacks) {
  const TempDir dir;
  const std::string header = "{" + entry("double", "F64", "[2]", 0, 16) + "," + entry("new", "F4", "[6]", 16, 19) +
                             "," + entry("none", "I8", "[3,0]", 19, 19) + "," + entry("scalar", "U8", "[]", 19, 20) +
                             "}";
  Result<SafetensorsFile> file = SafetensorsFile::open(dir.write("x", raw_file(header, std::string(20, '1'))));
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const char* name : {"double", "new", "scalar"}) {
    EXPECT_EQ(file.value().header().find(name)->dtype, DType::kNone) << name;
  }
  EXPECT_EQ(file.value().header().find("new")->dtype_text, "F4");
  EXPECT_EQ(file.value().header().find("none")->bytes(), 0u);
}

TEST(SafetensorsReader, TakesAnEmptyFileOfTensors) {
  const TempDir dir;
  Result<SafetensorsFile> file = SafetensorsFile::open(dir.write("x", raw_file("{}")));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(file.value().header().tensors.empty());
}

// A file that shrinks after it was opened is an error, not a crash.
TEST(SafetensorsReader, SurvivesTruncation) {
  const TempDir dir;
  const std::string path = dir.write("x", raw_file("{" + kPair + "}", kPairData));
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  expect_refusal(file.value().read(*file.value().header().find("b")).status(), {"the file ends after"});
}

TEST(SafetensorsWriter, AlignsEveryTensor) {
  const TempDir dir;
  const std::vector<std::byte> bytes(12, std::byte{3});
  const std::span<const std::byte> all = bytes;
  ASSERT_TRUE(write_safetensors(dir.file("x"),
                                {{"i8", DType::kInt8, {5}, all.first(5)},
                                 {"bf16", DType::kBfloat16, {1, 3}, all.first(6)},
                                 {"f32", DType::kFloat32, {3}, all},
                                 {"f16", DType::kFloat16, {1}, all.first(2)},
                                 {"i32", DType::kInt32, {}, all.first(4)}},
                                {{"key", "value \"quoted\" \u00e9"}})
                  .ok());
  Result<SafetensorsFile> file = SafetensorsFile::open(dir.file("x"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file.value().header().metadata.at("key"), "value \"quoted\" \u00e9");
  EXPECT_EQ(static_cast<uint8_t>(read_bytes(dir.file("x"))[0]) % 8, 0);
  for (const TensorEntry& tensor : file.value().header().tensors) {
    EXPECT_EQ(tensor.begin % static_cast<uint64_t>(dtype_bytes(tensor.dtype)), 0u) << tensor.name;
  }
}

TEST(SafetensorsWriter, RefusesWhatItCouldNotReadBack) {
  const TempDir dir;
  const std::byte four[4] = {};
  const auto write = [&](std::vector<TensorSource> tensors, const Metadata& metadata = {}) {
    return write_safetensors(dir.file("x"), std::move(tensors), metadata);
  };
  const TensorSource good{"a", DType::kInt8, {4}, four};
  expect_refusal(write({good, good}), {"'a' is given twice"});
  expect_refusal(write({{"a", DType::kInt8, {5}, four}}), {"'a'", "[5]", "4 bytes"});
  expect_refusal(write({{"a", DType::kInt8, {-2, -2}, four}}), {"'a'", "[-2, -2]"});
  expect_refusal(write({{"a", DType::kNone, {4}, four}}), {"dtype"});
  expect_refusal(write({{"__metadata__", DType::kInt8, {4}, four}}), {"reserved"});
  expect_refusal(write({{"\xFF", DType::kInt8, {4}, four}}), {"UTF-8"});
  expect_refusal(write({good}, {{"k", "\xFF"}}), {"UTF-8"});
  EXPECT_EQ(dir.entries(), 0);
}

// golden.safetensors was written by the format's own Python package: see golden/README.md.
TEST(SafetensorsGolden, IsReadAndWrittenBack) {
  Result<SafetensorsFile> file = SafetensorsFile::open(LQ_GOLDEN_DIR "/golden.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const SafetensorsHeader& header = file.value().header();
  EXPECT_EQ(header.metadata, (Metadata{{"format", "np"}, {"note", "caf\u00e9 \"quoted\""}}));
  std::vector<std::vector<std::byte>> contents;
  std::vector<TensorSource> sources;
  for (const char* name : {"codes", "count", "half", "brain", "single"}) {
    ASSERT_NE(header.find(name), nullptr) << name;
    const TensorEntry& tensor = *header.find(name);
    Result<std::vector<std::byte>> bytes = file.value().read(tensor);
    ASSERT_TRUE(bytes.ok());
    contents.push_back(std::move(bytes.value()));
    sources.push_back({tensor.name, tensor.dtype, tensor.shape, contents.back()});
  }
  EXPECT_EQ(header.find("codes")->shape, (std::vector<int64_t>{2, 3}));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(static_cast<int8_t>(contents[0][i]), i * 50 - 127);
  EXPECT_EQ(std::memcmp(contents[2].data(), "\x00\x3C\xFF\xFB", 4), 0);  // 1, -65504 in fp16
  EXPECT_EQ(std::memcmp(contents[3].data(), "\x80\x3F\x49\xC0", 4), 0);  // 1, -3.140625 in bf16
  const float single[3] = {1e-12f, 0.5f, -3e38f};
  EXPECT_EQ(std::memcmp(contents[4].data(), single, sizeof(single)), 0);

  const TempDir dir;
  ASSERT_TRUE(write_safetensors(dir.file("x"), sources, header.metadata).ok());
  Result<SafetensorsFile> again = SafetensorsFile::open(dir.file("x"));
  ASSERT_TRUE(again.ok());
  for (size_t i = 0; i < sources.size(); ++i) {
    const Result<std::vector<std::byte>> bytes = again.value().read(*again.value().header().find(sources[i].name));
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(bytes.value(), contents[i]) << sources[i].name;
  }
}

}  // namespace
}  // namespace leapquant::io
