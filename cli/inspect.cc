// SPDX-License-Identifier: Apache-2.0
//
// leapquant inspect: what a safetensors file holds, and what the checkpoints in it look like.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>

#include "command.h"
#include "failure.h"
#include "io/checkpoint_stats.h"
#include "io/text.h"

namespace leapquant::cli {
namespace {

constexpr int kLongestBar = 50;
constexpr int kCodesPerBar = 16;

void print_metadata(const io::Metadata& metadata) {
  if (metadata.empty()) return;
  fmt::print("\nmetadata\n");
  for (const auto& [key, value] : metadata) fmt::print("  {:<16} {}\n", io::in_quotes(key), io::in_quotes(value));
}

void print_tensors(const io::SafetensorsHeader& header) {
  fmt::print("\ntensors\n");
  for (const io::TensorEntry& entry : header.tensors) {
    fmt::print("  {:<16} {:<8} {:<24} {} bytes{}\n", io::in_quotes(entry.name), entry.dtype_text,
               shape_text(entry.shape), entry.bytes(),
               entry.dtype == DType::kNone ? " (a type that no call takes)" : "");
  }
}

void print_scales(const io::ProgramFile& file) {
  fmt::print("\nscales     {:>12} {:>12} {:>12}\n", "min", "median", "max");
  for (const char* name : {"s_k", "s_v"}) {
    const io::Spread spread = io::spread_of(file.at(name).as<float>());
    fmt::print("  {:<8} {:>12.4g} {:>12.4g} {:>12.4g}\n", name, spread.min, spread.median, spread.max);
  }
}

void print_codes(const io::CodeStats& stats, int64_t programs) {
  const int64_t total = std::accumulate(stats.count.begin(), stats.count.end(), int64_t{0});
  std::array<int64_t, io::kCodeValues / kCodesPerBar> bars{};
  for (int i = 0; i < io::kCodeValues; ++i)
    bars[static_cast<size_t>(i / kCodesPerBar)] += stats.count[static_cast<size_t>(i)];
  const int64_t tallest = *std::max_element(bars.begin(), bars.end());
  fmt::print("\ncodes\n");
  for (size_t i = 0; i < bars.size(); ++i) {
    const int first = static_cast<int>(i) * kCodesPerBar - 128;
    const auto width = static_cast<size_t>((bars[i] * kLongestBar + tallest - 1) / tallest);  // any code at all shows
    fmt::print("  {:>4} .. {:>4} {:>7.3f} % {}\n", first, first + kCodesPerBar - 1,
               100.0 * static_cast<double>(bars[i]) / static_cast<double>(total), std::string(width, '#'));
  }
  fmt::print("  residual all zero in {} of {} programs\n", stats.zero_programs, programs);
}

void print_states(const std::vector<io::HeadStats>& heads) {
  const auto by_mean = [](const io::HeadStats& a, const io::HeadStats& b) { return a.mean_abs < b.mean_abs; };
  const auto [lowest, highest] = std::minmax_element(heads.begin(), heads.end(), by_mean);
  double sum = 0;
  double largest = 0;
  int64_t nonfinite = 0;
  for (const io::HeadStats& head : heads) {
    sum += head.mean_abs;
    largest = std::max(largest, head.max_abs);
    nonfinite += head.nonfinite;
  }
  fmt::print("\ndecoded states\n");
  fmt::print("  mean |S|           {:.6g}\n", sum / static_cast<double>(heads.size()));
  fmt::print("  max |S|            {:.6g}\n", largest);
  fmt::print("  mean |S| by head   {:.6g} (head {}) to {:.6g} (head {})\n", lowest->mean_abs, lowest - heads.begin(),
             highest->mean_abs, highest - heads.begin());
  if (nonfinite > 0) fmt::print("  not finite         {} elements, left out above\n", nonfinite);
}

bool holds_checkpoint(const io::SafetensorsHeader& header) {
  const auto specs = io::checkpoint_tensors();
  return std::all_of(specs.begin(), specs.end(), [&](const auto& spec) { return header.find(spec.name) != nullptr; });
}

void print_checkpoint(const io::SafetensorsFile& file) {
  const Result<io::ProgramFile> loaded = io::load_checkpoint(file);
  if (!loaded.ok()) {
    fmt::print("\ncheckpoint: unusable: {}\n", loaded.status().message());
    return;
  }
  const io::ProgramFile& programs = loaded.value();
  const int64_t count = programs.batch * programs.geometry.num_heads;
  const Status values = io::check_values(programs);
  fmt::print("\ncheckpoint: {}, batch {}, {} programs\n", to_string(programs.geometry), programs.batch, count);
  fmt::print("  values: {}\n", values.ok() ? "inside their domains" : values.message());
  print_scales(programs);
  print_codes(io::code_stats(programs), count);
  print_states(io::state_stats(programs));
}

void inspect(const std::string& path) {
  const io::SafetensorsFile file = input_or_fail(io::SafetensorsFile::open(path));
  fmt::print("{}: {} tensors\n", io::in_quotes(path), file.header().tensors.size());
  print_metadata(file.header().metadata);
  print_tensors(file.header());
  if (holds_checkpoint(file.header())) print_checkpoint(file);
}

constexpr const char* kInspectFooter = R"(
Takes any safetensors file. Where it holds checkpoints (codes, s_k, s_v, u, q), also prints their scales, a histogram of
the codes and the statistics of the decoded states. Values outside the format are reported, not refused.

Example:
  leapquant inspect checkpoint.safetensors)";

}  // namespace

void register_inspect(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  CLI::App* const command = app.add_subcommand("inspect", "Show the tensors of a file and the checkpoints in it");
  command->footer(kInspectFooter);
  command->add_option("FILE", *path, "safetensors file")->required();
  command->callback([path] { inspect(*path); });
}

}  // namespace leapquant::cli
