// SPDX-License-Identifier: Apache-2.0
//
// Status and Result: how every function inside the library reports failure. Only src/api turns them into the C codes.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

namespace leapquant {

enum class Code {
  kOk = 0,
  kInvalidArgument = 1,
  kUnsupported = 2,
  kOutOfMemory = 3,
  kCuda = 4,
  kIo = 5,
  kInternal = 6,
};

// A code and, unless it is kOk, a text that names the tensor or field, what was expected and what came.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) { assert(code != Code::kOk); }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
inline Status unsupported(std::string message) { return {Code::kUnsupported, std::move(message)}; }
inline Status out_of_memory(std::string message) { return {Code::kOutOfMemory, std::move(message)}; }
inline Status io_error(std::string message) { return {Code::kIo, std::move(message)}; }
inline Status internal_error(std::string message) { return {Code::kInternal, std::move(message)}; }

// A value, or the Status that explains why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): return value; reads naturally
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }  // NOLINT(google-explicit-constructor)

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }

  T& value() {
    assert(ok());
    return *value_;
  }
  const T& value() const {
    assert(ok());
    return *value_;
  }

 private:
  std::optional<T> value_;
  Status status_;
};

// Returns from the enclosing function when `expression` (a Status) failed.
#define LQ_RETURN_IF_ERROR(expression)                                 \
  do {                                                                 \
    ::leapquant::Status lq_status_of_expression = (expression);        \
    if (!lq_status_of_expression.ok()) return lq_status_of_expression; \
  } while (false)

}  // namespace leapquant
