// SPDX-License-Identifier: Apache-2.0
//
// `leapquant flush` and `leapquant inspect`, from file to file.
#include "ref/flush.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "checkpoint_fixture.h"
#include "program.h"

namespace leapquant::cli {
namespace {

using io::ProgramFile;

const Geometry kGeometry = {.num_heads = 2, .num_key_heads = 2};

// Part `n` of a tensor of `count` programs.
template <class T>
T* part(ProgramFile& file, const char* name, int64_t n) {
  io::LoadedTensor& tensor = file.at(name);
  const size_t bytes = tensor.data.size() / static_cast<size_t>(file.batch * file.geometry.num_heads);
  return reinterpret_cast<T*>(tensor.data.data() + static_cast<size_t>(n) * bytes);
}

CheckpointProgram checkpoint_of(ProgramFile& file, int64_t n) {
  return {.codes = part<int8_t>(file, "codes", n),
          .key_scale = part<float>(file, "s_k", n),
          .value_scale = part<float>(file, "s_v", n),
          .key_factor = part<Half>(file, "u", n),
          .value_factor = part<Half>(file, "q", n),
          .key_factor_row = file.geometry.key_dim,
          .value_factor_row = file.geometry.value_dim};
}

WindowProgram window_of(ProgramFile& file, int64_t n) {
  return {.window_key = part<Bfloat16>(file, "kbuf", n),
          .window_update = part<Bfloat16>(file, "ubuf", n),
          .window_weight = part<float>(file, "w", n),
          .window_gate = part<Half>(file, "gbuf", n),
          .log_decay = part<float>(file, "pcum", n),
          .decay = nullptr};
}

// Flushes the programs of `inputs` in place, with the reference.
ProgramFile reference_flush(ProgramFile inputs) {
  for (int64_t n = 0; n < inputs.batch * inputs.geometry.num_heads; ++n) {
    const CheckpointProgram checkpoint = checkpoint_of(inputs, n);
    ref::flush_program<float>(inputs.geometry, checkpoint, window_of(inputs, n), inputs.at("q0").as<float>().data(),
                              checkpoint);
  }
  return inputs;
}

double largest_difference(ProgramFile& a, ProgramFile& b) {
  double largest = 0;
  for (int64_t n = 0; n < a.batch * a.geometry.num_heads; ++n) {
    const std::vector<double> x = ref::decode(a.geometry, checkpoint_of(a, n));
    const std::vector<double> y = ref::decode(b.geometry, checkpoint_of(b, n));
    for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::fabs(x[i] - y[i]));
  }
  return largest;
}

// A saved file of inputs, and a name for the output.
struct Files {
  io::TempDir dir;
  std::string in = dir.file("in.safetensors");
  std::string out = dir.file("out.safetensors");

  explicit Files(const ProgramFile& inputs = io::make_inputs(kGeometry, 2)) {
    const Status saved = io::save_inputs(in, inputs, io::format_metadata(inputs.geometry));
    EXPECT_TRUE(saved.ok()) << saved.message();
  }

  Outcome flush(std::vector<std::string> more = {}, const RunOptions& options = {}) const {
    std::vector<std::string> arguments = {"flush", in, "-o", out};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, options);
  }

  Result<ProgramFile> load() const {
    const Result<io::SafetensorsFile> file = io::SafetensorsFile::open(out);
    if (!file.ok()) return file.status();
    return io::load_checkpoint(file.value());
  }

  // That a refused flush wrote nothing.
  void expect_untouched() const { EXPECT_EQ(dir.entries(), 1); }
};

TEST(Flush, ReferenceBackendGivesTheReferencesBytes) {
  const Files files;
  expect_success(files.flush({"--backend", "ref"}), {"flushed 4 programs", "kda H=2", "batch 2", "on ref"});
  const Result<ProgramFile> result = files.load();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value().geometry, kGeometry);
  const ProgramFile expected = reference_flush(io::make_inputs(kGeometry, 2));
  for (const io::LoadedTensor& tensor : result.value().tensors) {
    EXPECT_EQ(tensor.data, expected.at(tensor.name).data) << tensor.name;
  }
}

TEST(Flush, DefaultBackendAgreesWithTheReference) {
  const Files files;
  expect_success(files.flush({"--threads", "1"}), {"1 thread)"});
  Result<ProgramFile> result = files.load();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ProgramFile expected = reference_flush(io::make_inputs(kGeometry, 2));
  // Both states lie within half a code of the same state; a code is worth at most max |S| / 127 of a smoothed row.
  EXPECT_LT(largest_difference(result.value(), expected), 0.2);
}

TEST(Flush, OutputHoldsTheCheckpointAndItsMetadata) {
  const Files files;
  expect_success(files.flush(), {});
  const Result<io::SafetensorsFile> file = io::SafetensorsFile::open(files.out);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().header().metadata, io::format_metadata(kGeometry));
  EXPECT_EQ(file.value().header().tensors.size(), 5u);
}

TEST(Flush, TakesTheShippedDefinition) {
  const Files files(io::make_inputs(Geometry{}, 1));
  expect_success(files.flush({"--definition", kDefinition}), {"flushed 32 programs"});
}

TEST(Flush, RefusesAnotherGeometryThanTheDefinitions) {
  const Files files;
  expect_failure(files.flush({"--definition", kDefinition}), 2, {"num_heads: expected 32 (the definition), found 2"});
  files.expect_untouched();
}

TEST(Flush, RefusesWrongInputs) {
  ProgramFile inputs = io::make_inputs(kGeometry, 2);
  inputs.at("codes").data[7] = std::byte{0x80};
  const Files files(inputs);
  expect_failure(files.flush(), 2, {"in.safetensors", "'codes'", "found -128 at [0, 0, 0, 7]"});
  files.expect_untouched();
  expect_failure(run_program({"flush", files.dir.file("none"), "-o", files.out}), 2, {"none", "No such file"});
  expect_failure(run_program({"flush", kDefinition, "-o", files.out}), 2, {"header length"});
  files.expect_untouched();
}

TEST(Flush, RefusesStatesThatLeaveTheFormat) {
  ProgramFile inputs = io::make_inputs(kGeometry, 2);
  for (const char* name : {"s_k", "s_v"}) {
    const float huge = 1e30f;
    std::memcpy(inputs.at(name).data.data(), &huge, sizeof(huge));
  }
  inputs.at("codes").data[0] = std::byte{100};
  const Files files(inputs);
  expect_failure(files.flush(), 2, {"leaves the range of the format", "tensor"});
  files.expect_untouched();
}

TEST(Flush, RefusesWhatTheBackendLacks) {
  const Files files(io::make_inputs(io::kSmallGeometry, 1));
  expect_failure(files.flush(), 2, {"backend 'cpu' supports value_dim 128, got 8"});
  files.expect_untouched();
}

TEST(Flush, RefusesAnUnknownBackend) {
  const Files files;
  expect_failure(files.flush({"--backend", "abacus"}), 2, {"abacus", "cpu", "ref"});
  files.expect_untouched();
}

TEST(Flush, RefusesToOverwriteItsInput) {
  const Files files;
  expect_failure(run_program({"flush", files.in, "-o", files.dir.file("./in.safetensors")}), 2, {"is the input"});
  EXPECT_TRUE(io::load_flush_inputs(files.in).ok());
}

TEST(Flush, AFailedSaveLeavesTheOldFile) {
  const Files files;
  files.dir.write("out.safetensors", "old");
  expect_failure(files.flush({}, {.file_size_limit = 4096}), 3, {"out.safetensors", "File too large"});
  EXPECT_EQ(io::read_bytes(files.out), "old");
  EXPECT_EQ(files.dir.entries(), 2);
  expect_failure(run_program({"flush", files.in, "-o", "/missing/out"}), 3, {"/missing/out", "No such file"});
}

TEST(Inspect, DescribesACheckpoint) {
  const Files files;
  expect_success(files.flush(), {});
  expect_success(run_program({"inspect", files.out}),
                 {"5 tensors", "'codes'", "[2, 2, 128, 128]", "'format'", "'leapquant'", "checkpoint: kda H=2",
                  "4 programs", "inside their domains", "median", "s_k", "112 ..  127", "#",
                  "residual all zero in 0 of 4 programs", "mean |S| by head", "max |S|"});
  expect_success(run_program({"inspect", files.in}), {"11 tensors", "'pcum'", "checkpoint: kda"});
}

TEST(Inspect, ReportsValuesOutsideTheFormat) {
  ProgramFile inputs = io::make_inputs(kGeometry, 2);
  inputs.at("codes").data[7] = std::byte{0x80};
  const Files files(inputs);
  expect_success(run_program({"inspect", files.in}), {"found -128 at [0, 0, 0, 7]", "decoded states"});
}

TEST(Inspect, ReportsTensorsThatAreNoCheckpoint) {
  ProgramFile inputs = io::make_inputs(kGeometry, 2);
  inputs.at("s_k").shape = {2, 256};
  const Files files(inputs);
  expect_success(run_program({"inspect", files.in}), {"checkpoint: unusable", "'s_k': shape: expected 3 dimensions"});
}

TEST(Inspect, TakesAnySafetensorsFile) {
  expect_success(run_program({"inspect", LQ_GOLDEN_DIR "/golden.safetensors"}), {"7 tensors", "F64", "no call takes"});
}

TEST(Inspect, RefusesABrokenFile) {
  const io::TempDir dir;
  expect_failure(run_program({"inspect", dir.write("x", "short")}), 2, {"at least 8 bytes, found 5"});
}

}  // namespace
}  // namespace leapquant::cli
