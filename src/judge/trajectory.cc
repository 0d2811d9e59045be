// SPDX-License-Identifier: Apache-2.0
#include "judge/trajectory.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "core/tensor_view.h"
#include "io/safetensors.h"

namespace leapquant::judge {
namespace {

constexpr const char* kFileName = "kda_trajectory.safetensors";
constexpr const char* kLayerNames[] = {"layer1", "layer3"};

// The first of the places where the file may be that has it; the first of all where none has, for the error to name.
std::string trajectory_path(const std::string& directory) {
  const char* environment = std::getenv("LQ_DATA_DIR");
  std::vector<std::filesystem::path> places = {LQ_SOURCE_DATA_DIR, LQ_INSTALLED_DATA_DIR};
  if (!directory.empty()) {
    places = {directory};
  } else if (environment != nullptr && *environment != '\0') {
    places = {environment};
  }
  for (const std::filesystem::path& place : places) {
    std::error_code ignored;
    if (std::filesystem::exists(place / kFileName, ignored)) return place / kFileName;
  }
  return places.front() / kFileName;
}

// Copies tensor `name`, which must have this type and shape, to `out`.
template <class T>
Status read_tensor(const io::SafetensorsFile& file, const std::string& name, DType dtype, std::vector<int64_t> shape,
                   std::vector<T>& out) {
  const io::TensorEntry* const entry = file.header().find(name);
  if (entry == nullptr) return io_error(file.path() + ": no tensor '" + name + "'");
  if (entry->dtype != dtype || entry->shape != shape) {
    return io_error(file.path() + ": tensor '" + name + "': expected " + dtype_name(dtype) + " " + shape_text(shape) +
                    ", got " + entry->dtype_text + " " + shape_text(entry->shape));
  }
  Result<std::vector<std::byte>> bytes = file.read(*entry);
  LQ_RETURN_IF_ERROR(bytes.status());
  out.resize(bytes.value().size() / sizeof(T));
  std::memcpy(out.data(), bytes.value().data(), out.size() * sizeof(T));
  return {};
}

Status read_layer(const io::SafetensorsFile& file, const std::string& name, const Trajectory& sizes,
                  TrajectoryLayer& layer) {
  const auto [sequences, tokens, heads, dim, unused] = sizes;
  const std::vector<int64_t> rows = {sequences, tokens, heads, dim};
  LQ_RETURN_IF_ERROR(read_tensor(file, name + ".q", DType::kBfloat16, rows, layer.q));
  LQ_RETURN_IF_ERROR(read_tensor(file, name + ".k", DType::kBfloat16, rows, layer.k));
  LQ_RETURN_IF_ERROR(read_tensor(file, name + ".v", DType::kBfloat16, rows, layer.v));
  LQ_RETURN_IF_ERROR(read_tensor(file, name + ".a", DType::kBfloat16, rows, layer.a));
  LQ_RETURN_IF_ERROR(read_tensor(file, name + ".b", DType::kBfloat16, {sequences, tokens, heads}, layer.b));
  LQ_RETURN_IF_ERROR(read_tensor(file, name + ".A_log", DType::kFloat32, {heads}, layer.a_log));
  return read_tensor(file, name + ".dt_bias", DType::kFloat32, {heads, dim}, layer.dt_bias);
}

}  // namespace

Result<Trajectory> read_trajectory(const std::string& directory) {
  Result<io::SafetensorsFile> file = io::SafetensorsFile::open(trajectory_path(directory));
  LQ_RETURN_IF_ERROR(file.status());
  const io::TensorEntry* const first = file.value().header().find(std::string(kLayerNames[0]) + ".k");
  if (first == nullptr || first->shape.size() != 4) {
    return io_error(file.value().path() + ": no tensor '" + kLayerNames[0] + ".k' of four dimensions");
  }
  Trajectory trajectory{first->shape[0], first->shape[1], first->shape[2], first->shape[3], {}};
  for (const char* const name : kLayerNames) {
    TrajectoryLayer layer;
    LQ_RETURN_IF_ERROR(read_layer(file.value(), name, trajectory, layer));
    trajectory.layers.push_back(std::move(layer));
  }
  return trajectory;
}

}  // namespace leapquant::judge
