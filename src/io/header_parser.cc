// SPDX-License-Identifier: Apache-2.0
#include "io/header_parser.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "io/json.h"
#include "io/text.h"

namespace leapquant::io {
namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";
constexpr size_t kMaxEntryDims = 64;
constexpr uint64_t kMaxInteger = std::numeric_limits<int64_t>::max();

// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {"key": "text"}}
class HeaderHandler final : public json::json_sax_t {
 public:
  Result<SafetensorsHeader> take() {
    if (!status_.ok()) return status_;
    return std::move(header_);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(text); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool start_object(size_t) override;
  bool key(string_t& key) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    return fail("header: " + parse_error_text(error));
  }

 private:
  enum class Where { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool fail(std::string message) {
    status_ = invalid_argument(std::move(message));
    return false;
  }
  bool unexpected(const std::string& found);
  std::string here() const;
  bool take_key(std::set<std::string>& seen, const std::string& key, const std::string& whose);
  bool finish_tensor();

  Status status_;
  SafetensorsHeader header_;
  Where where_ = Where::kStart;
  std::set<std::string> names_;
  std::set<std::string> fields_;  // of the object that is open inside the header's
  std::string name_;              // newest key of the header's object
  std::string field_;             // newest key of the object inside
  TensorEntry entry_;
  std::vector<uint64_t> offsets_;
};

// What is being read, for an error's text.
std::string HeaderHandler::here() const {
  if (where_ == Where::kStart) return "header";
  if (where_ == Where::kMetadata) return fmt::format("__metadata__: {}", in_quotes(field_));
  if (where_ == Where::kTop) return name_ == kMetadataKey ? "__metadata__" : fmt::format("tensor {}", in_quotes(name_));
  return fmt::format("tensor {}: {}", in_quotes(name_), field_);
}

bool HeaderHandler::unexpected(const std::string& found) {
  const char* expected = "an object";
  if (where_ == Where::kMetadata) expected = "a string";
  if (where_ == Where::kTensor) expected = field_ == "dtype" ? "a string" : "an array of integers";
  if (where_ == Where::kShape || where_ == Where::kOffsets) expected = "integers from 0 to 2^63 - 1";
  return fail(fmt::format("{}: expected {}, found {}", here(), expected, found));
}

bool HeaderHandler::take_key(std::set<std::string>& seen, const std::string& key, const std::string& whose) {
  if (seen.insert(key).second) return true;
  return fail(fmt::format("{}: expected every key once, found {} twice", whose, in_quotes(key)));
}

bool HeaderHandler::number_unsigned(number_unsigned_t value) {
  if ((where_ != Where::kShape && where_ != Where::kOffsets) || value > kMaxInteger) {
    return unexpected(std::to_string(value));
  }
  if (where_ == Where::kOffsets) {
    if (offsets_.size() == 2) return fail(here() + ": expected 2 integers, found more");
    offsets_.push_back(value);
    return true;
  }
  if (entry_.shape.size() == kMaxEntryDims) {
    return fail(fmt::format("{}: expected at most {} dimensions, found more", here(), kMaxEntryDims));
  }
  entry_.shape.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderHandler::string(string_t& value) {
  if (where_ == Where::kMetadata) {
    header_.metadata[field_] = std::move(value);
    return true;
  }
  if (where_ != Where::kTensor || field_ != "dtype") return unexpected("the string " + in_quotes(value));
  entry_.dtype_text = std::move(value);
  return true;
}

bool HeaderHandler::start_object(size_t) {
  if (where_ == Where::kStart) {
    where_ = Where::kTop;
    return true;
  }
  if (where_ != Where::kTop) return unexpected("an object");
  where_ = name_ == kMetadataKey ? Where::kMetadata : Where::kTensor;
  fields_.clear();
  entry_ = {};
  offsets_.clear();
  return true;
}

bool HeaderHandler::key(string_t& key) {
  if (where_ == Where::kTop) {
    name_ = key;
    return take_key(names_, key, "header");
  }
  field_ = key;
  const bool in_tensor = where_ == Where::kTensor;
  const std::string whose = in_tensor ? "tensor " + in_quotes(name_) : std::string(kMetadataKey);
  if (in_tensor && key != "dtype" && key != "shape" && key != "data_offsets") {
    return fail(fmt::format("{}: expected the fields dtype, shape and data_offsets, found {}", whose, in_quotes(key)));
  }
  return take_key(fields_, key, whose);
}

bool HeaderHandler::end_object() {
  const bool complete = where_ != Where::kTensor || finish_tensor();
  where_ = Where::kTop;  // of no consequence after the header's own end: only white space may follow
  return complete;
}

bool HeaderHandler::start_array(size_t) {
  if (where_ != Where::kTensor || field_ == "dtype") return unexpected("an array");
  where_ = field_ == "shape" ? Where::kShape : Where::kOffsets;
  return true;
}

bool HeaderHandler::end_array() {
  if (where_ == Where::kOffsets && offsets_.size() != 2) {
    return fail(fmt::format("{}: expected 2 integers, found {}", here(), offsets_.size()));
  }
  where_ = Where::kTensor;
  return true;
}

bool HeaderHandler::finish_tensor() {
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (fields_.count(field) == 0) return fail(fmt::format("tensor {}: {} is missing", in_quotes(name_), field));
  }
  entry_.name = name_;
  entry_.begin = offsets_[0];
  entry_.end = offsets_[1];
  header_.tensors.push_back(std::move(entry_));
  return true;
}

}  // namespace

Result<SafetensorsHeader> parse_header_json(std::string_view text) {
  HeaderHandler handler;
  json::sax_parse(text.begin(), text.end(), &handler);
  return handler.take();
}

}  // namespace leapquant::io
