// SPDX-License-Identifier: Apache-2.0
//
// Properties of the safetensors reader and writer over random files: what goes in comes out, and no corruption crashes
// the reader or makes it hand out bytes that the file does not hold.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <span>

#include "io/safetensors.h"
#include "raw_file.h"
#include "temp_dir.h"

namespace leapquant::io {
namespace {

struct RandomTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

const std::vector<DType> kTypes = {DType::kInt8, DType::kInt32, DType::kFloat16, DType::kBfloat16, DType::kFloat32};

std::vector<std::byte> random_bytes(size_t count) {
  const auto raw = *rc::gen::container<std::vector<uint8_t>>(count, rc::gen::arbitrary<uint8_t>());
  std::vector<std::byte> bytes(count);
  std::transform(raw.begin(), raw.end(), bytes.begin(), [](uint8_t value) { return std::byte{value}; });
  return bytes;
}

std::vector<RandomTensor> random_tensors() {
  const auto names = *rc::gen::unique<std::vector<std::string>>(rc::gen::string<std::string>());
  std::vector<RandomTensor> tensors;
  for (const std::string& name : names) {
    RandomTensor tensor{name, *rc::gen::elementOf(kTypes), {}, {}};
    tensor.shape = *rc::gen::resize(4, rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 5)));
    int64_t bytes = dtype_bytes(tensor.dtype);
    for (const int64_t extent : tensor.shape) bytes *= extent;
    tensor.data = random_bytes(static_cast<size_t>(bytes));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<TensorSource> sources_of(const std::vector<RandomTensor>& tensors) {
  std::vector<TensorSource> sources;
  for (const RandomTensor& tensor : tensors) sources.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  return sources;
}

// Random tensors in a file, by way of the writer. Names that are not UTF-8 are left out.
std::string random_file(const TempDir& dir, std::vector<RandomTensor>& tensors) {
  tensors = random_tensors();
  const Metadata metadata = {{"format", "leapquant"}, {"version", "1"}};
  std::erase_if(tensors, [&](const RandomTensor& tensor) {
    return !write_safetensors(dir.file("one"), sources_of({tensor}), {}).ok();
  });
  const Status status = write_safetensors(dir.file("x"), sources_of(tensors), metadata);
  RC_ASSERT(status.ok());
  return read_bytes(dir.file("x"));
}

// Every tensor of an accepted file lies inside it, takes what its type and shape say, and reads as the file's own
// bytes.
void check_consistent(const std::string& path, const SafetensorsFile& file) {
  const std::string bytes = read_bytes(path);
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
  std::set<std::string> names;
  uint64_t covered = 0;
  for (const TensorEntry& entry : file.header().tensors) {
    RC_ASSERT(names.insert(entry.name).second);
    RC_ASSERT(entry.begin == covered);
    covered = entry.end;
    const Result<std::vector<std::byte>> data = file.read(entry);
    RC_ASSERT(data.ok());
    const std::span<const std::byte> whole = std::as_bytes(std::span(bytes));
    const auto expected_data = whole.subspan(8 + header_bytes + entry.begin, entry.bytes());
    RC_ASSERT(std::ranges::equal(data.value(), expected_data));
    if (entry.dtype == DType::kNone) continue;
    int64_t expected = dtype_bytes(entry.dtype);
    for (const int64_t extent : entry.shape) expected *= extent;
    RC_ASSERT(static_cast<uint64_t>(expected) == entry.bytes());
  }
  RC_ASSERT(8 + header_bytes + covered == bytes.size());
}

RC_GTEST_PROP(SafetensorsProperty, RoundTrip, ()) {
  const TempDir dir;
  std::vector<RandomTensor> tensors;
  random_file(dir, tensors);
  Result<SafetensorsFile> file = SafetensorsFile::open(dir.file("x"));
  RC_ASSERT(file.ok());
  check_consistent(dir.file("x"), file.value());
  RC_ASSERT(file.value().header().tensors.size() == tensors.size());
  for (const RandomTensor& tensor : tensors) {
    const TensorEntry* entry = file.value().header().find(tensor.name);
    RC_ASSERT(entry != nullptr);
    RC_ASSERT(entry->dtype == tensor.dtype);
    RC_ASSERT(entry->shape == tensor.shape);
    RC_ASSERT(file.value().read(*entry).value() == tensor.data);
  }
}

RC_GTEST_PROP(SafetensorsProperty, CorruptionIsRefusedOrConsistent, ()) {
  const TempDir dir;
  std::vector<RandomTensor> tensors;
  std::string bytes = random_file(dir, tensors);
  const int changes = *rc::gen::inRange(1, 4);
  for (int i = 0; i < changes; ++i) {
    const auto place = *rc::gen::inRange<size_t>(0, bytes.size());
    bytes[place] = static_cast<char>(*rc::gen::arbitrary<uint8_t>());
  }
  const std::string path = dir.write("y", bytes);
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (file.ok()) check_consistent(path, file.value());
}

RC_GTEST_PROP(SafetensorsProperty, AnyOtherLengthIsRefused, ()) {
  const TempDir dir;
  std::vector<RandomTensor> tensors;
  std::string bytes = random_file(dir, tensors);
  const auto length =
      *rc::gen::suchThat(rc::gen::inRange<size_t>(0, bytes.size() + 20), [&](size_t n) { return n != bytes.size(); });
  bytes.resize(length, '\0');
  RC_ASSERT(!SafetensorsFile::open(dir.write("y", bytes)).ok());
}

RC_GTEST_PROP(SafetensorsProperty, RandomHeadersNeverCrash, (const std::string& text)) {
  const TempDir dir;
  const std::string path = dir.write("x", raw_file("{" + text));
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (file.ok()) check_consistent(path, file.value());
}

}  // namespace
}  // namespace leapquant::io
