// SPDX-License-Identifier: Apache-2.0
#include "io/definition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "io/input_file.h"
#include "io/json.h"
#include "io/tensor_schema.h"
#include "io/text.h"

namespace leapquant::io {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxTextBytes = 16 << 20;

// ---- typed access to JSON objects ----------------------------------------------------------------------------------

// A member of `object` that satisfies `is_expected`, or a Status that names `field`.
Result<const json*> member(const json& object, const char* key, const std::string& field, const char* expected,
                           bool (json::*is_expected)() const noexcept) {
  const auto found = object.find(key);
  if (found == object.end()) return field_error(field, expected, "nothing");
  if (!((*found).*is_expected)()) return field_error(field, expected, found->type_name());
  return &*found;
}

Status read_string(const json& object, const char* key, const std::string& field, std::string& text) {
  const Result<const json*> value = member(object, key, field, "a string", &json::is_string);
  if (!value.ok()) return value.status();
  text = value.value()->get<std::string>();
  return {};
}

Status read_optional_string(const json& object, const char* key, std::string& text) {
  return object.contains(key) ? read_string(object, key, key, text) : Status();
}

Status read_size(const json& value, const std::string& field, int64_t& size) {
  constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
  if (!value.is_number_unsigned() || value.get<uint64_t>() < 1 || value.get<uint64_t>() > kLargest) {
    return field_error(field, "an integer of at least 1", value.is_number() ? value.dump() : value.type_name());
  }
  size = static_cast<int64_t>(value.get<uint64_t>());
  return {};
}

Status read_strings(const json& array, const std::string& field, std::vector<std::string>& strings) {
  for (const json& item : array) {
    if (!item.is_string())
      return field_error(field, "an array of strings", std::string("an item of type ") + item.type_name());
    strings.push_back(item.get<std::string>());
  }
  return {};
}

// ---- definitions ---------------------------------------------------------------------------------------------------

Status read_axes(const json& object, Definition& definition) {
  const Result<const json*> axes = member(object, "axes", "axes", "an object", &json::is_object);
  if (!axes.ok()) return axes.status();
  for (const auto& [name, axis] : axes.value()->items()) {
    const std::string field = fmt::format("axes: {}", in_quotes(name));
    if (!axis.is_object()) return field_error(field, "an object", axis.type_name());
    std::string type;
    LQ_RETURN_IF_ERROR(read_string(axis, "type", field + ": type", type));
    if (type == "var") {
      definition.axes[name] = std::nullopt;
      continue;
    }
    if (type != "const") return field_error(field + ": type", "'const' or 'var'", in_quotes(type));
    if (!axis.contains("value")) return field_error(field + ": value", "an integer of at least 1", "nothing");
    int64_t value = 0;
    LQ_RETURN_IF_ERROR(read_size(axis["value"], field + ": value", value));
    definition.axes[name] = value;
  }
  return {};
}

Status read_tensors(const json& object, const char* key, const Definition& definition,
                    std::vector<TensorSignature>& tensors) {
  const Result<const json*> group = member(object, key, key, "an object", &json::is_object);
  if (!group.ok()) return group.status();
  for (const auto& [name, value] : group.value()->items()) {
    const std::string field = fmt::format("{}: {}", key, in_quotes(name));
    if (!value.is_object()) return field_error(field, "an object", value.type_name());
    TensorSignature tensor{name, "", {}};
    LQ_RETURN_IF_ERROR(read_string(value, "dtype", field + ": dtype", tensor.dtype));
    const Result<const json*> shape = member(value, "shape", field + ": shape", "an array", &json::is_array);
    if (!shape.ok()) return shape.status();
    LQ_RETURN_IF_ERROR(read_strings(*shape.value(), field + ": shape", tensor.shape));
    for (const std::string& axis : tensor.shape) {
      if (definition.axes.count(axis) == 0) return field_error(field + ": shape", "names of axes", in_quotes(axis));
    }
    tensors.push_back(std::move(tensor));
  }
  return {};
}

Status read_definition(const json& object, Definition& definition) {
  if (!object.is_object()) return field_error("definition", "an object", object.type_name());
  LQ_RETURN_IF_ERROR(read_string(object, "name", "name", definition.name));
  LQ_RETURN_IF_ERROR(read_string(object, "op_type", "op_type", definition.op_type));
  LQ_RETURN_IF_ERROR(read_optional_string(object, "description", definition.description));
  LQ_RETURN_IF_ERROR(read_axes(object, definition));
  LQ_RETURN_IF_ERROR(read_tensors(object, "inputs", definition, definition.inputs));
  LQ_RETURN_IF_ERROR(read_tensors(object, "outputs", definition, definition.outputs));
  LQ_RETURN_IF_ERROR(read_string(object, "reference", "reference", definition.reference));
  if (!object.contains("constraints")) return {};
  const Result<const json*> constraints = member(object, "constraints", "constraints", "an array", &json::is_array);
  if (!constraints.ok()) return constraints.status();
  return read_strings(*constraints.value(), "constraints", definition.constraints);
}

// ---- the flush that a definition states ----------------------------------------------------------------------------

Result<Gate> gate_of_operation(const std::string& op_type) {
  for (const Gate gate : {Gate::kKda, Gate::kGdn}) {
    if (op_type == fmt::format("leapquant_{}_flush", gate_name(gate))) return gate;
  }
  return field_error("op_type", "leapquant_kda_flush or leapquant_gdn_flush", in_quotes(op_type));
}

std::vector<std::string> axis_names(const TensorSpec& spec) {
  std::vector<std::string> names;
  for (const Axis axis : spec.axes) names.emplace_back(axis_name(axis));
  return names;
}

// `tensors` are exactly the specs, each name followed by `suffix`.
Status check_signatures(const std::vector<TensorSignature>& tensors, std::span<const TensorSpec> specs,
                        const std::string& group, const std::string& suffix) {
  for (const TensorSpec& spec : specs) {
    const std::string name = spec.name + suffix;
    const std::string field = fmt::format("{}: '{}'", group, name);
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) { return tensor.name == name; });
    if (found == tensors.end()) return field_error(field, "a tensor", "nothing");
    if (found->dtype != dtype_name(spec.dtype))
      return field_error(field + ": dtype", dtype_name(spec.dtype), in_quotes(found->dtype));
    if (found->shape != axis_names(spec)) {
      return field_error(field + ": shape", fmt::format("{}", fmt::join(axis_names(spec), ", ")),
                         in_quotes(fmt::format("{}", fmt::join(found->shape, ", "))));
    }
  }
  if (tensors.size() == specs.size()) return {};
  return field_error(group, fmt::format("{} tensors", specs.size()), std::to_string(tensors.size()));
}

// ---- workloads -----------------------------------------------------------------------------------------------------

Status read_workload(const json& object, Workload& workload) {
  if (!object.is_object()) return field_error("workload", "an object", object.type_name());
  LQ_RETURN_IF_ERROR(read_string(object, "definition", "definition", workload.definition));
  const Result<const json*> inner = member(object, "workload", "workload", "an object", &json::is_object);
  if (!inner.ok()) return inner.status();
  LQ_RETURN_IF_ERROR(read_string(*inner.value(), "uuid", "workload: uuid", workload.uuid));
  const Result<const json*> axes = member(*inner.value(), "axes", "workload: axes", "an object", &json::is_object);
  if (!axes.ok()) return axes.status();
  for (const auto& [name, value] : axes.value()->items()) {
    LQ_RETURN_IF_ERROR(read_size(value, fmt::format("workload: axes: {}", in_quotes(name)), workload.axes[name]));
  }
  return {};
}

Result<Workload> parse_workload(std::string_view line, int number) {
  const auto in_line = [&](const Status& status) {
    return Status(status.code(), fmt::format("line {}: {}", number, status.message()));
  };
  const Result<json> object = parse_json(line);
  if (!object.ok()) return in_line(object.status());
  Workload workload;
  const Status status = read_workload(object.value(), workload);
  if (!status.ok()) return in_line(status);
  return workload;
}

}  // namespace

Result<Definition> parse_definition(std::string_view text) {
  const Result<json> object = parse_json(text);
  if (!object.ok()) return object.status();
  Definition definition;
  LQ_RETURN_IF_ERROR(read_definition(object.value(), definition));
  return definition;
}

Result<Definition> load_definition(const std::string& path) {
  const Result<std::string> text = read_text(path, kMaxTextBytes);
  if (!text.ok()) return text.status();
  Result<Definition> definition = parse_definition(text.value());
  if (!definition.ok()) return in_file(path, definition.status());
  return definition;
}

Result<Geometry> definition_geometry(const Definition& definition) {
  const Result<Gate> gate = gate_of_operation(definition.op_type);
  if (!gate.ok()) return gate.status();
  AxisSizes sizes;
  for (const Axis axis : {Axis::kHeads, Axis::kValue, Axis::kKey, Axis::kWindow, Axis::kRank}) {
    const auto found = definition.axes.find(axis_name(axis));
    if (found == definition.axes.end() || !found->second) {
      return field_error(fmt::format("axes: '{}'", axis_name(axis)), "a const axis",
                         found == definition.axes.end() ? "nothing" : "a var axis");
    }
    sizes[axis] = *found->second;
  }
  LQ_RETURN_IF_ERROR(check_signatures(definition.inputs, flush_tensors(gate.value()), "inputs", ""));
  LQ_RETURN_IF_ERROR(check_signatures(definition.outputs, checkpoint_tensors(), "outputs", "_new"));
  return sizes.geometry(gate.value(), Geometry{});
}

Result<std::vector<Workload>> parse_workloads(std::string_view text) {
  std::vector<Workload> workloads;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Result<Workload> workload = parse_workload(line, number);
    if (!workload.ok()) return workload.status();
    workloads.push_back(std::move(workload.value()));
  }
  return workloads;
}

Result<std::vector<Workload>> load_workloads(const std::string& path) {
  const Result<std::string> text = read_text(path, kMaxTextBytes);
  if (!text.ok()) return text.status();
  Result<std::vector<Workload>> workloads = parse_workloads(text.value());
  if (!workloads.ok()) return in_file(path, workloads.status());
  return workloads;
}

Result<std::vector<int64_t>> workload_batches(const std::vector<Workload>& workloads, const Definition& definition) {
  if (workloads.empty()) return field_error("workloads", "at least one", "none");
  std::vector<int64_t> batches;
  for (const Workload& workload : workloads) {
    const std::string who = fmt::format("workload {}", in_quotes(workload.uuid));
    if (workload.definition != definition.name) {
      return field_error(who + ": definition", in_quotes(definition.name), in_quotes(workload.definition));
    }
    for (const auto& [name, size] : workload.axes) {
      const auto axis = definition.axes.find(name);
      if (axis == definition.axes.end()) return field_error(who + ": axes", "axes of the definition", in_quotes(name));
      if (axis->second && *axis->second != size) {
        return field_error(fmt::format("{}: axes: {}", who, in_quotes(name)), std::to_string(*axis->second),
                           std::to_string(size));
      }
    }
    const auto batch = workload.axes.find(axis_name(Axis::kBatch));
    if (batch == workload.axes.end())
      return field_error(who + ": axes: 'batch_size'", "an integer of at least 1", "nothing");
    batches.push_back(batch->second);
  }
  return batches;
}

}  // namespace leapquant::io
