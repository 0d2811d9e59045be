// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint files: what is saved is loaded, and a file of another geometry, gate, version or domain is refused with
// the field, what was expected and what was found.
#include "io/checkpoint_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "checkpoint_fixture.h"
#include "io/checkpoint_stats.h"
#include "ref/flush.h"
#include "temp_dir.h"

namespace leapquant::io {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// The status of loading `file` after a save with `metadata`.
Status load_status(const ProgramFile& file, const Metadata& metadata = {},
                   const std::optional<ExpectedGeometry>& expected = {}) {
  const TempDir dir;
  const Status saved = save_inputs(dir.file("x"), file, metadata);
  EXPECT_TRUE(saved.ok()) << saved.message();
  return load_flush_inputs(dir.file("x"), expected).status();
}

TEST(CheckpointFile, RoundTrip) {
  const TempDir dir;
  for (const Gate gate : {Gate::kKda, Gate::kGdn}) {
    Geometry geometry = kSmallGeometry;
    geometry.gate = gate;
    const ProgramFile file = make_inputs(geometry);
    ASSERT_TRUE(save_inputs(dir.file("in"), file, format_metadata(geometry)).ok());
    const Result<ProgramFile> loaded = load_flush_inputs(dir.file("in"));
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ(loaded.value().geometry, geometry);
    EXPECT_EQ(loaded.value().batch, 3);
    for (const LoadedTensor& tensor : file.tensors) EXPECT_EQ(loaded.value().at(tensor.name).data, tensor.data);

    ASSERT_TRUE(save_checkpoint(dir.file("out"), file).ok());
    const Result<SafetensorsFile> out = SafetensorsFile::open(dir.file("out"));
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(out.value().header().tensors.size(), checkpoint_tensors().size());
    EXPECT_EQ(out.value().header().metadata, format_metadata(geometry));
    const Result<ProgramFile> checkpoint = load_checkpoint(out.value());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    EXPECT_EQ(checkpoint.value().geometry, geometry);
    EXPECT_EQ(checkpoint.value().at("codes").data, file.at("codes").data);
  }
}

TEST(CheckpointFile, NeedsNoMetadata) {
  EXPECT_TRUE(load_status(make_inputs()).ok());
  EXPECT_TRUE(load_status(make_inputs(), {{"comment", "anything"}}).ok());
}

TEST(CheckpointFile, KeepsKeyHeadsOfGdn) {
  const TempDir dir;
  Geometry geometry = kSmallGeometry;
  geometry.gate = Gate::kGdn;
  geometry.num_key_heads = 1;
  ASSERT_TRUE(save_inputs(dir.file("x"), make_inputs(geometry), format_metadata(geometry)).ok());
  EXPECT_EQ(load_flush_inputs(dir.file("x")).value().geometry, geometry);
  Metadata metadata = format_metadata(geometry);
  metadata["num_key_heads"] = "3";
  expect_refusal(load_status(make_inputs(geometry), metadata), {"num_key_heads must divide num_heads (2), got 3"});
}

TEST(CheckpointFile, RefusesAWindowThatIsNoSize) {
  const TempDir dir;
  for (const char* window : {"0", "-4", "4x", "99999999999"}) {
    Metadata metadata = format_metadata(kSmallGeometry);
    metadata["window"] = window;
    ASSERT_TRUE(save_inputs(dir.file("x"), make_inputs(), metadata).ok());
    expect_refusal(load_checkpoint(SafetensorsFile::open(dir.file("x")).value()).status(), {"window"});
  }
}

TEST(CheckpointFile, RefusesMetadataThatDisagrees) {
  const struct {
    const char* key;
    const char* value;
    const char* text;
  } cases[] = {{"format", "pt", "__metadata__: format: expected 'leapquant', found 'pt'"},
               {"version", "2", "__metadata__: version: expected '1', found '2'"},
               {"gate", "mamba", "__metadata__: gate: expected 'kda' or 'gdn', found 'mamba'"},
               {"gate", "gdn", "gate: expected gdn (__metadata__), found the window tensors of kda"},
               {"num_heads", "3", "__metadata__: num_heads: expected '2', found '3'"},
               {"num_key_heads", "1", "__metadata__: num_key_heads: expected '2', found '1'"},
               {"value_dim", "16", "__metadata__: value_dim: expected '8', found '16'"},
               {"key_dim", "8", "__metadata__: key_dim: expected '16', found '8'"},
               {"window", "8", "__metadata__: window: expected '4', found '8'"},
               {"rank", "4", "__metadata__: rank: expected '3', found '4'"},
               {"code_bits", "4", "__metadata__: code_bits: expected '8', found '4'"}};
  for (const auto& [key, value, text] : cases) {
    Metadata metadata = format_metadata(kSmallGeometry);
    metadata[key] = value;
    expect_refusal(load_status(make_inputs(), metadata), {text});
  }
}

TEST(CheckpointFile, RefusesAnotherGeometryThanExpected) {
  const auto refuses = [](auto change, const char* text) {
    ExpectedGeometry expected{kSmallGeometry, "the definition"};
    change(expected.geometry);
    expect_refusal(load_status(make_inputs(), format_metadata(kSmallGeometry), expected), {text});
  };
  refuses([](Geometry& g) { g.num_heads = g.num_key_heads = 32; },
          "tensor 'codes': num_heads: expected 32 (the definition), found 2 in [3, 2, 8, 16]");
  refuses([](Geometry& g) { g.value_dim = 128; }, "value_dim: expected 128 (the definition), found 8");
  refuses([](Geometry& g) { g.key_dim = 128; }, "key_dim: expected 128 (the definition), found 16");
  refuses([](Geometry& g) { g.rank = 4; }, "tensor 'u': rank: expected 4 (the definition), found 3");
  refuses([](Geometry& g) { g.window = 16; }, "tensor 'kbuf': window: expected 16 (the definition), found 4");
  refuses([](Geometry& g) { g.gate = Gate::kGdn; }, "gate: expected gdn (the definition), found kda");
  EXPECT_TRUE(load_status(make_inputs(), {}, ExpectedGeometry{kSmallGeometry, "the definition"}).ok());
}

TEST(CheckpointFile, RefusesTensorsThatDisagree) {
  const auto refuses = [](const char* name, auto change, std::initializer_list<const char*> parts) {
    ProgramFile file = make_inputs();
    change(file.at(name));
    expect_refusal(load_status(file), parts);
  };
  refuses("s_k",
          [](LoadedTensor& t) {
            t.shape = {2, 3, 16};
          },
          {"tensor 's_k': batch_size: expected 3 (as in 'codes'), found 2 in [2, 3, 16]"});
  refuses("q0", [](LoadedTensor& t) { t.shape = {3, 8}; }, {"tensor 'q0': value_dim: expected 8", "found 3"});
  refuses("w", [](LoadedTensor& t) { t.shape = {24}; },
          {"'w': shape: expected 3 dimensions (batch_size, num_heads, window)", "[24]"});
  refuses("pcum", [](LoadedTensor& t) { t.dtype = DType::kInt32; }, {"'pcum': dtype: expected float32, found 'I32'"});
  refuses("kbuf", [](LoadedTensor& t) { t.dtype = DType::kFloat16; },
          {"'kbuf': dtype: expected bfloat16, found 'F16'"});
  refuses("u", [](LoadedTensor& t) { t.name = "u_new"; }, {"tensor 'u' is missing", "gate kda takes codes, s_k"});
}

TEST(CheckpointFile, RefusesUnknownAndEmptyTensors) {
  ProgramFile file = make_inputs();
  file.tensors.push_back({"extra", DType::kInt8, {0}, {}});
  expect_refusal(load_status(file), {"tensor 'extra' is unknown", "codes, s_k"});
  expect_refusal(load_status(make_inputs(kSmallGeometry, 0)),
                 {"'codes': batch_size: expected at least 1", "[0, 2, 8, 16]"});
  ProgramFile both = make_inputs();
  both.tensors.push_back({"p", DType::kFloat32, {0}, {}});
  expect_refusal(load_status(both), {"tensor 'p' is unknown"});
}

// Puts one value at a flat place of a tensor.
template <class T>
ProgramFile with_value(const char* name, size_t place, T value) {
  ProgramFile file = make_inputs();
  std::memcpy(file.at(name).data.data() + place * sizeof(T), &value, sizeof(T));
  return file;
}

TEST(CheckpointFile, HoldsValuesToTheirDomains) {
  expect_refusal(load_status(with_value<int8_t>("codes", 16 * 8 + 5, -128)),
                 {"tensor 'codes': expected codes from -127 to 127, found -128 at [0, 1, 0, 5]"});
  EXPECT_TRUE(load_status(with_value<int8_t>("codes", 5, -127)).ok());
  for (const float scale : {0.0f, -1.0f, kInf, std::nanf("")}) {
    expect_refusal(load_status(with_value("s_k", 0, scale)), {"tensor 's_k'", "above 0", "at [0, 0, 0]"});
    expect_refusal(load_status(with_value("s_v", 8, scale)), {"tensor 's_v'", "above 0", "at [0, 1, 0]"});
  }
  EXPECT_TRUE(load_status(with_value("s_k", 0, 1e-40f)).ok());
  for (const float value : {kInf, -kInf, std::nanf("")}) {
    expect_refusal(load_status(with_value("u", 1, to_half(value))), {"tensor 'u'", "finite", "at [0, 0, 0, 1]"});
    expect_refusal(load_status(with_value("q", 1, to_half(value))), {"tensor 'q'"});
    expect_refusal(load_status(with_value("kbuf", 1, to_bfloat16(value))), {"tensor 'kbuf'"});
    expect_refusal(load_status(with_value("ubuf", 1, to_bfloat16(value))), {"tensor 'ubuf'"});
    expect_refusal(load_status(with_value("q0", 4, value)), {"tensor 'q0'", "at [1, 1]"});
    expect_refusal(load_status(with_value("pcum", 4, value)), {"tensor 'pcum'"});
  }
  for (const float value : {-0.5f, 1.5f, std::nanf("")}) {
    expect_refusal(load_status(with_value("gbuf", 1, to_half(value))), {"tensor 'gbuf'", "from 0 to 1"});
    expect_refusal(load_status(with_value("w", 1, value)), {"tensor 'w'", "from 0 to 1"});
  }
  expect_refusal(load_status(with_value("pcum", 16, 1e-6f)), {"tensor 'pcum'", "at most 0", "at [0, 1, 0]"});
  EXPECT_TRUE(load_status(with_value("pcum", 16, -2000.0f)).ok());
}

// Bytes changed in the header: the file is refused, or holds exactly the tensors that it held.
RC_GTEST_PROP(CheckpointFileProperty, HeaderCorruptionNeverChangesData, ()) {
  const TempDir dir;
  const ProgramFile original = make_inputs();
  RC_ASSERT(save_inputs(dir.file("x"), original, format_metadata(kSmallGeometry)).ok());
  std::string bytes = read_bytes(dir.file("x"));
  const size_t header_end = bytes.find("}}") + 2;
  const auto place = *rc::gen::inRange<size_t>(0, header_end);
  bytes[place] = static_cast<char>(*rc::gen::arbitrary<uint8_t>());
  const Result<ProgramFile> loaded = load_flush_inputs(dir.write("y", bytes));
  if (!loaded.ok()) return;
  RC_ASSERT(loaded.value().geometry == kSmallGeometry);
  for (const LoadedTensor& tensor : original.tensors) RC_ASSERT(loaded.value().at(tensor.name).data == tensor.data);
}

TEST(CheckpointFile, InspectedCheckpointsMayBreakTheDomain) {
  const TempDir dir;
  ASSERT_TRUE(save_checkpoint(dir.file("x"), with_value<int8_t>("codes", 0, -128)).ok());
  const Result<ProgramFile> loaded = load_checkpoint(SafetensorsFile::open(dir.file("x")).value());
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  expect_refusal(check_values(loaded.value()), {"found -128"});
}

TEST(CheckpointStats, SpreadIsByOrder) {
  const float values[] = {3.0f, std::nanf(""), -1.0f, 2.0f, 7.0f};
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.min, -1.0f);
  EXPECT_EQ(spread.median, 3.0f);
  EXPECT_TRUE(std::isnan(spread.max));
}

TEST(CheckpointStats, CountsCodes) {
  ProgramFile file = make_inputs();
  const auto program = static_cast<size_t>(kSmallGeometry.state_elements());
  std::fill_n(file.at("codes").data.begin(), 2 * program, std::byte{0});
  const CodeStats stats = code_stats(file);
  EXPECT_EQ(stats.zero_programs, 2);
  EXPECT_GE(stats.count[128], static_cast<int64_t>(2 * program));
  EXPECT_EQ(std::accumulate(stats.count.begin(), stats.count.end(), int64_t{0}), 6 * kSmallGeometry.state_elements());
}

TEST(CheckpointStats, DecodesAsTheReferenceDoes) {
  ProgramFile file = make_inputs();
  const std::vector<HeadStats> stats = state_stats(file);
  ASSERT_EQ(stats.size(), 2u);
  const Geometry& g = file.geometry;
  const auto part = [&](const char* name, int64_t program, auto* type) {
    LoadedTensor& tensor = file.at(name);
    const size_t bytes = tensor.data.size() / static_cast<size_t>(file.batch * g.num_heads);
    return reinterpret_cast<decltype(type)>(tensor.data.data() + static_cast<size_t>(program) * bytes);
  };
  for (int64_t head = 0; head < 2; ++head) {
    double sum = 0;
    double largest = 0;
    for (int64_t item = 0; item < file.batch; ++item) {
      const int64_t n = item * g.num_heads + head;
      const CheckpointProgram program{.codes = part("codes", n, static_cast<int8_t*>(nullptr)),
                                      .key_scale = part("s_k", n, static_cast<float*>(nullptr)),
                                      .value_scale = part("s_v", n, static_cast<float*>(nullptr)),
                                      .key_factor = part("u", n, static_cast<Half*>(nullptr)),
                                      .value_factor = part("q", n, static_cast<Half*>(nullptr)),
                                      .key_factor_row = g.key_dim,
                                      .value_factor_row = g.value_dim};
      for (const double value : ref::decode(g, program)) {
        sum += std::fabs(value);
        largest = std::max(largest, std::fabs(value));
      }
    }
    EXPECT_NEAR(stats[head].max_abs, largest, 1e-12 * largest);
    EXPECT_NEAR(stats[head].mean_abs, sum / static_cast<double>(file.batch * g.state_elements()), 1e-12 * largest);
    EXPECT_EQ(stats[head].nonfinite, 0);
  }
}

TEST(CheckpointStats, LeavesOutWhatIsNotFinite) {
  ProgramFile file = with_value("s_v", 0, kInf);  // row 0 of the first program
  const std::vector<HeadStats> stats = state_stats(file);
  EXPECT_EQ(stats[0].nonfinite, kSmallGeometry.key_dim);
  EXPECT_TRUE(std::isfinite(stats[0].mean_abs));
  EXPECT_EQ(stats[1].nonfinite, 0);
}

}  // namespace
}  // namespace leapquant::io
