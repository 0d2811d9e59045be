// SPDX-License-Identifier: Apache-2.0
//
// leapquant info: version, build, and what the backends of this build offer on this machine.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "json_output.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::cli {
namespace {

using nlohmann::ordered_json;

constexpr const char* kBuildType = LQ_BUILD_TYPE;
constexpr const char* kSanitizers = LQ_SANITIZERS;
#if defined(__clang__)
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

const char* device_type_name(lq_device_type type) { return type == LQ_DEVICE_CUDA ? "cuda" : "cpu"; }

std::string device_name(const lq_device& device) {
  return device.type == LQ_DEVICE_CPU ? "cpu" : fmt::format("{}:{}", device_type_name(device.type), device.index);
}

ordered_json split(std::string_view list) {
  ordered_json parts = ordered_json::array();
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    std::string_view part = list.substr(0, end);
    part.remove_prefix(std::min(part.find_first_not_of(' '), part.size()));
    parts.push_back(part);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return parts;
}

// What a backend is, and what it would run with by default; or why it would not run.
ordered_json describe(const lq_backend_info& backend) {
  ordered_json result = {{"name", backend.name},
                         {"device_type", device_type_name(backend.device)},
                         {"description", backend.description},
                         {"supports", backend.supports},
                         {"targets", split(backend.targets)}};
  try {
    const Context context(backend.name);
    const lq_context_info info = context.info();
    result["device"] = device_name(info.device);
    result["target"] = info.target;
    result["threads"] = info.threads;
  } catch (const Error& error) {
    result["unavailable"] = error.what();
  }
  return result;
}

ordered_json collect() {
  ordered_json info = {{"version", lq_version()},
                       {"build", {{"type", kBuildType}, {"compiler", kCompiler}, {"sanitizers", kSanitizers}}},
                       {"backends", ordered_json::array()}};
  for (const lq_backend_info& backend : backends()) info["backends"].push_back(describe(backend));
  return info;
}

std::string text(const ordered_json& value) { return value.get<std::string>(); }

void print_backend(const ordered_json& backend) {
  fmt::print("\nbackend {}: {}\n", text(backend["name"]), text(backend["description"]));
  fmt::print("  supports  {}\n", text(backend["supports"]));
  std::string targets;
  for (const ordered_json& target : backend["targets"]) targets += (targets.empty() ? "" : ", ") + text(target);
  fmt::print("  targets   {}\n", targets);
  if (backend.contains("unavailable")) {
    fmt::print("  unavailable: {}\n", text(backend["unavailable"]));
    return;
  }
  fmt::print("  device    {}\n", text(backend["device"]));
  const int threads = backend["threads"].get<int>();
  fmt::print("  runs with {}, {} {}\n", text(backend["target"]), threads, threads == 1 ? "thread" : "threads");
}

void print_text(const ordered_json& info) {
  const ordered_json& build = info["build"];
  const std::string sanitizers = text(build["sanitizers"]);
  fmt::print("leapquant {}\n", text(info["version"]));
  fmt::print("build {}, {}{}\n", text(build["type"]), text(build["compiler"]),
             sanitizers.empty() ? "" : ", sanitizers " + sanitizers);
  for (const ordered_json& backend : info["backends"]) print_backend(backend);
}

void show(const std::string& json_path) {
  const ordered_json info = collect();
  if (json_path.empty()) {
    print_text(info);
  } else {
    write_json(json_path, info);
  }
}

constexpr const char* kInfoFooter = R"(
Examples:
  leapquant info
  leapquant info --json -
  LQ_CPU_TARGET=sse4 leapquant info)";

}  // namespace

void register_info(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* const command = app.add_subcommand("info", "Show the version, the build, and the backends of this machine");
  command->footer(kInfoFooter);
  command->add_option("--json", *path, "Write JSON to this file instead; - is the standard output");
  command->callback([path] { show(*path); });
}

}  // namespace leapquant::cli
