// SPDX-License-Identifier: Apache-2.0
#include "core/geometry.h"

namespace leapquant {
namespace {

constexpr int32_t kLargestSize = 4096;

struct Field {
  const char* name;
  int32_t value;
};

Status check_size(const Field& field) {
  if (field.value >= 1 && field.value <= kLargestSize) return {};
  return invalid_argument(std::string("geometry: ") + field.name + " must be between 1 and " +
                          std::to_string(kLargestSize) + ", got " + std::to_string(field.value));
}

Status lacks(const char* backend_name, const Field& field, const char* supported) {
  return unsupported(std::string("backend '") + backend_name + "' supports " + field.name + " " + supported + ", got " +
                     std::to_string(field.value));
}

}  // namespace

const char* gate_name(Gate gate) {
  switch (gate) {
    case Gate::kKda:
      return "kda";
    case Gate::kGdn:
      return "gdn";
  }
  return "unknown";
}

std::string to_string(const Geometry& geometry) {
  return std::string(gate_name(geometry.gate)) + " H=" + std::to_string(geometry.num_heads) +
         " V=" + std::to_string(geometry.value_dim) + " K=" + std::to_string(geometry.key_dim) +
         " L=" + std::to_string(geometry.window) + " R=" + std::to_string(geometry.rank) + " " +
         std::to_string(geometry.code_bits) + "-bit";
}

Status check_geometry(const Geometry& geometry) {
  if (geometry.gate != Gate::kKda && geometry.gate != Gate::kGdn) {
    return invalid_argument("geometry: gate must be 1 (kda) or 2 (gdn), got " +
                            std::to_string(static_cast<int32_t>(geometry.gate)));
  }
  const Field fields[] = {{"num_heads", geometry.num_heads}, {"num_key_heads", geometry.num_key_heads},
                          {"value_dim", geometry.value_dim}, {"key_dim", geometry.key_dim},
                          {"window", geometry.window},       {"rank", geometry.rank},
                          {"code_bits", geometry.code_bits}};
  for (const Field& field : fields) LQ_RETURN_IF_ERROR(check_size(field));
  if (geometry.gate == Gate::kKda && geometry.num_key_heads != geometry.num_heads) {
    return invalid_argument("geometry: kda has as many key heads as heads (" + std::to_string(geometry.num_heads) +
                            "), got num_key_heads " + std::to_string(geometry.num_key_heads));
  }
  if (geometry.num_heads % geometry.num_key_heads != 0) {
    return invalid_argument("geometry: num_key_heads must divide num_heads (" + std::to_string(geometry.num_heads) +
                            "), got " + std::to_string(geometry.num_key_heads));
  }
  return {};
}

Status check_required_geometry(const Geometry& geometry, const char* backend_name) {
  if (geometry.value_dim != 128) return lacks(backend_name, {"value_dim", geometry.value_dim}, "128");
  if (geometry.key_dim != 128) return lacks(backend_name, {"key_dim", geometry.key_dim}, "128");
  if (geometry.window != 16) return lacks(backend_name, {"window", geometry.window}, "16");
  if (geometry.code_bits != 8) return lacks(backend_name, {"code_bits", geometry.code_bits}, "8");
  const int32_t rank = geometry.rank;
  if (rank != 1 && rank != 2 && rank != 4 && rank != 8) return lacks(backend_name, {"rank", rank}, "1, 2, 4, 8");
  return {};
}

}  // namespace leapquant
