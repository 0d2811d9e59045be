// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "io/atomic_file.h"
#include "io/header_parser.h"
#include "io/text.h"

namespace leapquant::io {
namespace {

constexpr int kHeaderNesting = 3;  // header, tensor, shape
constexpr size_t kHeaderAlignment = 8;

struct DTypeName {
  const char* text;
  uint64_t bytes;
  DType dtype;
};

// The format's types. Those that the library lacks are known by size only.
constexpr DTypeName kDTypes[] = {
    {"I8", 1, DType::kInt8},       {"I32", 4, DType::kInt32},    {"F16", 2, DType::kFloat16},
    {"BF16", 2, DType::kBfloat16}, {"F32", 4, DType::kFloat32},  {"BOOL", 1, DType::kNone},
    {"U8", 1, DType::kNone},       {"F8_E4M3", 1, DType::kNone}, {"F8_E5M2", 1, DType::kNone},
    {"F8_E8M0", 1, DType::kNone},  {"I16", 2, DType::kNone},     {"U16", 2, DType::kNone},
    {"U32", 4, DType::kNone},      {"I64", 8, DType::kNone},     {"U64", 8, DType::kNone},
    {"F64", 8, DType::kNone},      {"C64", 8, DType::kNone}};

const DTypeName* find_dtype(std::string_view text) {
  const auto* found =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& d) { return text == d.text; });
  return found == std::end(kDTypes) ? nullptr : found;
}

const char* file_name_of(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& d) { return dtype == d.dtype; });
  return found->text;
}

// Bytes of a tensor, or false when they don't fit 64 bits.
bool tensor_bytes(std::span<const int64_t> shape, uint64_t element_bytes, uint64_t& bytes) {
  bytes = element_bytes;
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return false;
  }
  return true;
}

// One tensor by itself: its offsets are in order and cover what its type and shape take.
Status check_entry(TensorEntry& entry) {
  const std::string who = fmt::format("tensor {}", in_quotes(entry.name));
  if (entry.begin > entry.end) {
    return invalid_argument(
        fmt::format("{}: data_offsets: expected begin <= end, found [{}, {}]", who, entry.begin, entry.end));
  }
  const DTypeName* dtype = find_dtype(entry.dtype_text);
  if (dtype == nullptr) return {};
  entry.dtype = dtype->dtype;
  const std::string what = entry.dtype_text + " " + shape_text(entry.shape);
  uint64_t bytes = 0;
  if (!tensor_bytes(entry.shape, dtype->bytes, bytes)) {
    return invalid_argument(fmt::format("{}: shape: expected a size below 2^64 bytes, found {}", who, what));
  }
  if (bytes == entry.bytes()) return {};
  return invalid_argument(fmt::format("{}: data_offsets: expected {} bytes for {}, found {} in [{}, {}]", who, bytes,
                                      what, entry.bytes(), entry.begin, entry.end));
}

// All tensors together, sorted by offset: they tile the data from its first byte to its last.
Status check_tiling(std::span<const TensorEntry> tensors, uint64_t data_bytes) {
  uint64_t covered = 0;
  std::string previous = "the header";
  for (const TensorEntry& entry : tensors) {
    const std::string who = fmt::format("tensor {}", in_quotes(entry.name));
    if (entry.begin < covered) {
      return invalid_argument(fmt::format("{} overlaps {}: expected it to begin at byte {}, found {}", who, previous,
                                          covered, entry.begin));
    }
    if (entry.begin > covered) {
      return invalid_argument(
          fmt::format("hole of {} bytes between {} and {}: expected it to begin at byte {}, found {}",
                      entry.begin - covered, previous, who, covered, entry.begin));
    }
    covered = entry.end;
    previous = who;
  }
  if (covered == data_bytes) return {};
  return invalid_argument(fmt::format(
      "tensor data: expected {} bytes (the end of {}), found {}: {} too {}", covered, previous, data_bytes,
      covered > data_bytes ? covered - data_bytes : data_bytes - covered, covered > data_bytes ? "few" : "many"));
}

Status check_source(const TensorSource& tensor) {
  const std::string who = fmt::format("tensor {}", in_quotes(tensor.name));
  LQ_RETURN_IF_ERROR(check_utf8(tensor.name));
  if (tensor.name == "__metadata__") return invalid_argument(who + ": the name is reserved");
  if (tensor.dtype == DType::kNone) return invalid_argument(who + ": dtype: expected a type, found none");
  uint64_t bytes = 0;
  const bool negative =
      std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t extent) { return extent < 0; });
  if (negative || !tensor_bytes(tensor.shape, static_cast<uint64_t>(dtype_bytes(tensor.dtype)), bytes) ||
      bytes != tensor.data.size()) {
    return invalid_argument(fmt::format("{}: {} {} does not take the {} bytes that came", who, dtype_name(tensor.dtype),
                                        shape_text(tensor.shape), tensor.data.size()));
  }
  return {};
}

Status check_sources(std::span<const TensorSource> tensors, const Metadata& metadata) {
  for (const auto& [key, value] : metadata) {
    LQ_RETURN_IF_ERROR(check_utf8(key));
    LQ_RETURN_IF_ERROR(check_utf8(value));
  }
  std::vector<std::string_view> names;
  for (const TensorSource& tensor : tensors) {
    LQ_RETURN_IF_ERROR(check_source(tensor));
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return {};
  return invalid_argument(fmt::format("tensor {} is given twice", in_quotes(*twice)));
}

// The 8-byte length and the header, padded with spaces so that the data begins at a multiple of 8.
std::string header_bytes(std::span<const TensorSource> tensors, const Metadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t begin = 0;
  for (const TensorSource& tensor : tensors) {
    const uint64_t end = begin + tensor.data.size();
    header[tensor.name] = {
        {"dtype", file_name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  std::string prefix;
  for (size_t i = 0; i < kHeaderPrefixBytes; ++i) prefix += static_cast<char>(uint64_t{text.size()} >> (8 * i));
  return prefix + text;
}

}  // namespace

const TensorEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const auto& entry) { return entry.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<uint64_t> header_length(const std::array<uint8_t, kHeaderPrefixBytes>& prefix, uint64_t file_bytes) {
  uint64_t length = 0;
  for (size_t i = 0; i < prefix.size(); ++i) length |= uint64_t{prefix[i]} << (8 * i);
  if (length > kMaxHeaderBytes) {
    return invalid_argument(fmt::format("header length: expected at most {}, found {}", kMaxHeaderBytes, length));
  }
  if (length + kHeaderPrefixBytes > file_bytes) {
    return invalid_argument(fmt::format("header length: expected at most {} (the rest of the file), found {}",
                                        file_bytes - kHeaderPrefixBytes, length));
  }
  return length;
}

Result<SafetensorsHeader> parse_header(std::string_view text, uint64_t data_bytes) {
  const Status utf8 = check_utf8(text);
  if (!utf8.ok()) return invalid_argument("header: " + utf8.message());
  if (text.empty() || text.front() != '{') {
    return invalid_argument(
        fmt::format("header: expected it to begin with '{{', found {}", in_quotes(text.substr(0, 8))));
  }
  const Status nesting = check_nesting(text, kHeaderNesting);
  if (!nesting.ok()) return invalid_argument("header: " + nesting.message());
  Result<SafetensorsHeader> header = parse_header_json(text);
  if (!header.ok()) return header.status();
  std::vector<TensorEntry>& tensors = header.value().tensors;
  for (TensorEntry& entry : tensors) LQ_RETURN_IF_ERROR(check_entry(entry));
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  LQ_RETURN_IF_ERROR(check_tiling(tensors, data_bytes));
  return header;
}

SafetensorsFile::SafetensorsFile(InputFile file, SafetensorsHeader header, uint64_t data_offset)
    : file_(std::move(file)), header_(std::move(header)), data_offset_(data_offset) {}

Result<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  Result<InputFile> file = InputFile::open(path);
  if (!file.ok()) return file.status();
  const uint64_t file_bytes = file.value().size();
  std::array<uint8_t, kHeaderPrefixBytes> prefix{};
  if (file_bytes < prefix.size()) {
    return in_file(path,
                   invalid_argument(fmt::format("expected a safetensors file of at least {} bytes, found {} bytes",
                                                prefix.size(), file_bytes)));
  }
  LQ_RETURN_IF_ERROR(file.value().read_at(0, prefix.data(), prefix.size()));
  const Result<uint64_t> length = header_length(prefix, file_bytes);
  if (!length.ok()) return in_file(path, length.status());
  std::string text(length.value(), '\0');
  LQ_RETURN_IF_ERROR(file.value().read_at(prefix.size(), text.data(), text.size()));
  const uint64_t data_offset = prefix.size() + length.value();
  Result<SafetensorsHeader> header = parse_header(text, file_bytes - data_offset);
  if (!header.ok()) return in_file(path, header.status());
  return SafetensorsFile(std::move(file.value()), std::move(header.value()), data_offset);
}

Result<std::vector<std::byte>> SafetensorsFile::read(const TensorEntry& entry) const {
  try {
    std::vector<std::byte> data(entry.bytes());
    LQ_RETURN_IF_ERROR(file_.read_at(data_offset_ + entry.begin, data.data(), data.size()));
    return data;
  } catch (const std::bad_alloc&) {
    return in_file(path(),
                   out_of_memory(fmt::format("tensor {} takes {} bytes", in_quotes(entry.name), entry.bytes())));
  } catch (const std::length_error&) {
    return in_file(path(),
                   out_of_memory(fmt::format("tensor {} takes {} bytes", in_quotes(entry.name), entry.bytes())));
  }
}

Status write_safetensors(const std::string& path, std::vector<TensorSource> tensors, const Metadata& metadata) {
  const Status checked = check_sources(tensors, metadata);
  if (!checked.ok()) return in_file(path, checked);
  std::sort(tensors.begin(), tensors.end(), [](const TensorSource& a, const TensorSource& b) {
    return std::make_tuple(-dtype_bytes(a.dtype), std::cref(a.name)) <
           std::make_tuple(-dtype_bytes(b.dtype), std::cref(b.name));
  });
  const std::string header = header_bytes(tensors, metadata);
  if (header.size() - kHeaderPrefixBytes > kMaxHeaderBytes) {
    return in_file(path, invalid_argument(fmt::format("header length: expected at most {}, found {}", kMaxHeaderBytes,
                                                      header.size() - kHeaderPrefixBytes)));
  }
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(header))};
  for (const TensorSource& tensor : tensors) pieces.push_back(tensor.data);
  return write_file_atomically(path, pieces);
}

}  // namespace leapquant::io
