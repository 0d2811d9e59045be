// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "core/numerics.h"
#include "io/text.h"

namespace leapquant::io {
namespace {

Status check_metadata(const Metadata& metadata, const char* key, const std::string& expected) {
  const auto found = metadata.find(key);
  if (found == metadata.end() || found->second == expected) return {};
  return field_error(fmt::format("__metadata__: {}", key), in_quotes(expected), in_quotes(found->second));
}

// ---- gate --------------------------------------------------------------------------------------------------------

// The gate whose window tensors a file holds, if it holds those of one gate only.
std::optional<Gate> gate_of_tensors(const SafetensorsHeader& header) {
  const bool kda = header.find("gbuf") != nullptr || header.find("pcum") != nullptr;
  const bool gdn = header.find("p") != nullptr;
  if (kda == gdn) return {};
  return kda ? Gate::kKda : Gate::kGdn;
}

Result<Gate> gate_of_metadata(const Metadata& metadata, Gate otherwise) {
  const auto found = metadata.find("gate");
  if (found == metadata.end()) return otherwise;
  for (const Gate gate : {Gate::kKda, Gate::kGdn}) {
    if (found->second == gate_name(gate)) return gate;
  }
  return field_error("__metadata__: gate", "'kda' or 'gdn'", in_quotes(found->second));
}

Result<Gate> gate_of_inputs(const SafetensorsHeader& header, const std::optional<ExpectedGeometry>& expected) {
  const std::optional<Gate> by_tensors = gate_of_tensors(header);
  const Result<Gate> by_metadata = gate_of_metadata(header.metadata, by_tensors.value_or(Gate::kKda));
  if (!by_metadata.ok()) return by_metadata.status();
  const Gate gate = by_metadata.value();
  if (expected && expected->geometry.gate != gate) {
    return field_error("gate", fmt::format("{} ({})", gate_name(expected->geometry.gate), expected->source),
                       gate_name(gate));
  }
  if (by_tensors && *by_tensors != gate) {
    return field_error("gate", fmt::format("{} (__metadata__)", gate_name(gate)),
                       fmt::format("the window tensors of {}", gate_name(*by_tensors)));
  }
  return gate;
}

// ---- names and shapes --------------------------------------------------------------------------------------------

Status check_names(const SafetensorsHeader& header, std::span<const TensorSpec> specs, Gate gate) {
  for (const TensorSpec& spec : specs) {
    if (header.find(spec.name) == nullptr) {
      return invalid_argument(
          fmt::format("tensor '{}' is missing: gate {} takes {}", spec.name, gate_name(gate), names_of(specs)));
    }
  }
  for (const TensorEntry& entry : header.tensors) {
    const auto known = [&](const TensorSpec& spec) { return entry.name == spec.name; };
    if (std::none_of(specs.begin(), specs.end(), known)) {
      return invalid_argument(fmt::format("tensor {} is unknown: gate {} takes {}", in_quotes(entry.name),
                                          gate_name(gate), names_of(specs)));
    }
  }
  return {};
}

// Derives the sizes of the axes from the shapes: the first tensor with an axis fixes it for the others.
class ShapeCheck {
 public:
  ShapeCheck() = default;
  explicit ShapeCheck(const ExpectedGeometry& expected) : sizes_(expected.geometry) { fixed_by_.fill(expected.source); }

  Status add(const TensorSpec& spec, const TensorEntry& entry) {
    const std::string who = fmt::format("tensor '{}'", spec.name);
    if (entry.dtype != spec.dtype) {
      return field_error(who + ": dtype", dtype_name(spec.dtype), in_quotes(entry.dtype_text));
    }
    if (entry.shape.size() != spec.axes.size()) {
      return field_error(who + ": shape", fmt::format("{} dimensions ({})", spec.axes.size(), axis_names(spec)),
                         shape_text(entry.shape));
    }
    for (size_t d = 0; d < spec.axes.size(); ++d) LQ_RETURN_IF_ERROR(add_axis(spec, entry, d));
    return {};
  }

  const AxisSizes& sizes() const { return sizes_; }

 private:
  static std::string axis_names(const TensorSpec& spec) {
    std::string names;
    for (const Axis axis : spec.axes) names += (names.empty() ? "" : ", ") + std::string(axis_name(axis));
    return names;
  }

  Status add_axis(const TensorSpec& spec, const TensorEntry& entry, size_t d) {
    const Axis axis = spec.axes[d];
    const std::string field = fmt::format("tensor '{}': {}", spec.name, axis_name(axis));
    if (entry.shape[d] < 1) return field_error(field, "at least 1", shape_text(entry.shape));
    std::string& fixed_by = fixed_by_[static_cast<size_t>(axis)];
    if (sizes_[axis] == 0) {
      sizes_[axis] = entry.shape[d];
      fixed_by = fmt::format("as in '{}'", spec.name);
    }
    if (sizes_[axis] == entry.shape[d]) return {};
    return field_error(field, fmt::format("{} ({})", sizes_[axis], fixed_by),
                       fmt::format("{} in {}", entry.shape[d], shape_text(entry.shape)));
  }

  AxisSizes sizes_;
  std::array<std::string, kAxisCount> fixed_by_;
};

Status check_metadata_format(const Metadata& metadata) {
  LQ_RETURN_IF_ERROR(check_metadata(metadata, "format", kFormatName));
  return check_metadata(metadata, "version", kFormatVersion);
}

// A size that the metadata states in decimal; nothing when it states none.
std::optional<int32_t> metadata_size(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return {};
  const char* end = found->second.data() + found->second.size();
  int32_t size = 0;
  const auto [rest, error] = std::from_chars(found->second.data(), end, size);
  if (error != std::errc() || rest != end) return {};
  return size;
}

// The key heads are the one size that no shape of a flush shows.
Status take_key_heads(const Metadata& metadata, const std::optional<ExpectedGeometry>& expected, Geometry& geometry) {
  if (expected) geometry.num_key_heads = expected->geometry.num_key_heads;
  if (expected || geometry.gate == Gate::kKda) return {};
  geometry.num_key_heads = metadata_size(metadata, "num_key_heads").value_or(geometry.num_heads);
  return check_geometry(geometry);
}

Status check_metadata_sizes(const Metadata& metadata, const Geometry& geometry) {
  for (const auto& [key, value] : format_metadata(geometry)) {
    LQ_RETURN_IF_ERROR(check_metadata(metadata, key.c_str(), value));
  }
  return {};
}

Result<std::vector<LoadedTensor>> read_tensors(const SafetensorsFile& file, std::span<const TensorSpec> specs) {
  std::vector<LoadedTensor> tensors;
  for (const TensorSpec& spec : specs) {
    const TensorEntry& entry = *file.header().find(spec.name);
    Result<std::vector<std::byte>> data = file.read(entry);
    if (!data.ok()) return data.status();
    tensors.push_back({spec.name, spec.dtype, entry.shape, std::move(data.value())});
  }
  return tensors;
}

struct Layout {
  Geometry geometry;
  int64_t batch;
};

Result<Layout> layout_of_inputs(const SafetensorsHeader& header, const std::optional<ExpectedGeometry>& expected) {
  LQ_RETURN_IF_ERROR(check_metadata_format(header.metadata));
  const Result<Gate> gate = gate_of_inputs(header, expected);
  if (!gate.ok()) return gate.status();
  const std::span<const TensorSpec> specs = flush_tensors(gate.value());
  LQ_RETURN_IF_ERROR(check_names(header, specs, gate.value()));
  ShapeCheck shapes = expected ? ShapeCheck(*expected) : ShapeCheck();
  for (const TensorSpec& spec : specs) LQ_RETURN_IF_ERROR(shapes.add(spec, *header.find(spec.name)));
  Result<Geometry> geometry = shapes.sizes().geometry(gate.value(), Geometry{});
  if (!geometry.ok()) return geometry.status();
  LQ_RETURN_IF_ERROR(take_key_heads(header.metadata, expected, geometry.value()));
  LQ_RETURN_IF_ERROR(check_metadata_sizes(header.metadata, geometry.value()));
  return Layout{geometry.value(), shapes.sizes()[Axis::kBatch]};
}

Result<Layout> layout_of_checkpoint(const SafetensorsHeader& header) {
  LQ_RETURN_IF_ERROR(check_metadata_format(header.metadata));
  const Result<Gate> gate = gate_of_metadata(header.metadata, gate_of_tensors(header).value_or(Gate::kKda));
  if (!gate.ok()) return gate.status();
  ShapeCheck shapes;
  for (const TensorSpec& spec : checkpoint_tensors()) {
    const TensorEntry* entry = header.find(spec.name);
    if (entry == nullptr) {
      return invalid_argument(
          fmt::format("tensor '{}' is missing: a checkpoint holds {}", spec.name, names_of(checkpoint_tensors())));
    }
    LQ_RETURN_IF_ERROR(shapes.add(spec, *entry));
  }
  Geometry unfixed;
  unfixed.window = metadata_size(header.metadata, "window").value_or(unfixed.window);
  Result<Geometry> geometry = shapes.sizes().geometry(gate.value(), unfixed);
  if (!geometry.ok()) return geometry.status();
  LQ_RETURN_IF_ERROR(take_key_heads(header.metadata, {}, geometry.value()));
  LQ_RETURN_IF_ERROR(check_metadata_sizes(header.metadata, geometry.value()));
  return Layout{geometry.value(), shapes.sizes()[Axis::kBatch]};
}

// ---- values ------------------------------------------------------------------------------------------------------

bool in_domain(Domain domain, float value) {
  switch (domain) {
    case Domain::kCode:
      return value >= -kCodeMax;
    case Domain::kScale:
      return std::isfinite(value) && value > 0.0f;
    case Domain::kFinite:
      return std::isfinite(value);
    case Domain::kUnit:
      return value >= 0.0f && value <= 1.0f;
    case Domain::kNonPositive:
      return std::isfinite(value) && value <= 0.0f;
  }
  return false;
}

const char* domain_text(Domain domain) {
  switch (domain) {
    case Domain::kCode:
      return "codes from -127 to 127";
    case Domain::kScale:
      return "finite scales above 0";
    case Domain::kFinite:
      return "finite values";
    case Domain::kUnit:
      return "values from 0 to 1";
    case Domain::kNonPositive:
      return "finite values of at most 0";
  }
  return "";
}

std::string place_text(std::span<const int64_t> shape, int64_t flat) {
  std::vector<int64_t> place(shape.size());
  for (size_t d = shape.size(); d-- > 0; flat /= shape[d]) place[d] = flat % shape[d];
  return shape_text(place);
}

float as_float(int8_t value) { return value; }
float as_float(float value) { return value; }
float as_float(Half value) { return to_float(value); }
float as_float(Bfloat16 value) { return to_float(value); }

template <class T>
Status check_domain(const LoadedTensor& tensor, Domain domain) {
  const std::span<const T> values = tensor.as<T>();
  for (size_t i = 0; i < values.size(); ++i) {
    const float value = as_float(values[i]);
    if (in_domain(domain, value)) continue;
    return invalid_argument(fmt::format("tensor '{}': expected {}, found {} at {}", tensor.name, domain_text(domain),
                                        value, place_text(tensor.shape, static_cast<int64_t>(i))));
  }
  return {};
}

Status check_domain(const LoadedTensor& tensor, Domain domain) {
  switch (tensor.dtype) {
    case DType::kInt8:
      return check_domain<int8_t>(tensor, domain);
    case DType::kFloat16:
      return check_domain<Half>(tensor, domain);
    case DType::kBfloat16:
      return check_domain<Bfloat16>(tensor, domain);
    default:
      return check_domain<float>(tensor, domain);
  }
}

}  // namespace

LoadedTensor& ProgramFile::at(std::string_view name) {
  return *std::find_if(tensors.begin(), tensors.end(), [&](const LoadedTensor& tensor) { return tensor.name == name; });
}

const LoadedTensor& ProgramFile::at(std::string_view name) const { return const_cast<ProgramFile*>(this)->at(name); }

Result<ProgramFile> load_flush_inputs(const std::string& path, const std::optional<ExpectedGeometry>& expected) {
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file.ok()) return file.status();
  const Result<Layout> layout = layout_of_inputs(file.value().header(), expected);
  if (!layout.ok()) return in_file(path, layout.status());
  Result<std::vector<LoadedTensor>> tensors = read_tensors(file.value(), flush_tensors(layout.value().geometry.gate));
  if (!tensors.ok()) return tensors.status();
  ProgramFile programs{layout.value().geometry, layout.value().batch, std::move(tensors.value())};
  const Status values = check_values(programs);
  if (!values.ok()) return in_file(path, values);
  return programs;
}

Result<ProgramFile> load_checkpoint(const SafetensorsFile& file) {
  const Result<Layout> layout = layout_of_checkpoint(file.header());
  if (!layout.ok()) return in_file(file.path(), layout.status());
  Result<std::vector<LoadedTensor>> tensors = read_tensors(file, checkpoint_tensors());
  if (!tensors.ok()) return tensors.status();
  return ProgramFile{layout.value().geometry, layout.value().batch, std::move(tensors.value())};
}

Status check_values(const ProgramFile& file) {
  for (const TensorSpec& spec : flush_tensors(file.geometry.gate)) {
    for (const LoadedTensor& tensor : file.tensors) {
      if (tensor.name == spec.name) LQ_RETURN_IF_ERROR(check_domain(tensor, spec.domain));
    }
  }
  return {};
}

Status save_checkpoint(const std::string& path, const ProgramFile& file) {
  std::vector<TensorSource> sources;
  for (const TensorSpec& spec : checkpoint_tensors()) {
    const LoadedTensor& tensor = file.at(spec.name);
    sources.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  }
  return write_safetensors(path, std::move(sources), format_metadata(file.geometry));
}

Metadata format_metadata(const Geometry& geometry) {
  return {{"format", kFormatName},
          {"version", kFormatVersion},
          {"gate", gate_name(geometry.gate)},
          {"num_heads", std::to_string(geometry.num_heads)},
          {"num_key_heads", std::to_string(geometry.num_key_heads)},
          {"value_dim", std::to_string(geometry.value_dim)},
          {"key_dim", std::to_string(geometry.key_dim)},
          {"window", std::to_string(geometry.window)},
          {"rank", std::to_string(geometry.rank)},
          {"code_bits", std::to_string(geometry.code_bits)}};
}

}  // namespace leapquant::io
