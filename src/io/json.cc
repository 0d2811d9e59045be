// SPDX-License-Identifier: Apache-2.0
#include "io/json.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "io/text.h"

namespace leapquant::io {
namespace {

using nlohmann::json;

// Watches a parse for a key that one object holds twice: the parser itself would keep the last and say nothing.
class KeyWatch {
 public:
  void see(json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) open_.emplace_back();
    if (event == json::parse_event_t::object_end) open_.pop_back();
    if (event != json::parse_event_t::key || !status_.ok()) return;
    const auto& key = parsed.get_ref<const std::string&>();
    if (!open_.back().insert(key).second) {
      status_ = invalid_argument(fmt::format("expected every key once, found {} twice", in_quotes(key)));
    }
  }

  const Status& status() const { return status_; }

 private:
  std::vector<std::set<std::string>> open_;
  Status status_;
};

}  // namespace

Result<json> parse_json(std::string_view text) {
  LQ_RETURN_IF_ERROR(check_utf8(text));
  LQ_RETURN_IF_ERROR(check_nesting(text, kMaxJsonDepth));
  KeyWatch keys;
  const auto watch = [&keys](int, json::parse_event_t event, json& parsed) {
    keys.see(event, parsed);
    return true;
  };
  try {
    json value = json::parse(text.begin(), text.end(), watch);
    LQ_RETURN_IF_ERROR(keys.status());
    return value;
  } catch (const json::exception& error) {
    return invalid_argument(parse_error_text(error));
  }
}

std::string parse_error_text(const json::exception& error) {
  const std::string_view text = error.what();
  const size_t prefix_end = text.find("] ");
  return std::string(prefix_end == std::string_view::npos ? text : text.substr(prefix_end + 2));
}

}  // namespace leapquant::io
