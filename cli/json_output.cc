// SPDX-License-Identifier: Apache-2.0
#include "json_output.h"

#include <fmt/format.h>

#include <array>
#include <span>

#include "failure.h"
#include "io/atomic_file.h"

namespace leapquant::cli {

void write_json(const std::string& path, const nlohmann::ordered_json& document) {
  const std::string text = document.dump(2) + "\n";
  if (path == "-") {
    fmt::print("{}", text);
    return;
  }
  const std::array<std::span<const std::byte>, 1> pieces = {std::as_bytes(std::span(text))};
  require_output(io::write_file_atomically(path, pieces));
}

}  // namespace leapquant::cli
