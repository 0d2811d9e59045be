// SPDX-License-Identifier: Apache-2.0
//
// Geometry: the sizes that fix every shape and byte count of a checkpoint and a window.
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace leapquant {

enum class Gate : int32_t {
  kKda = 1,  // one decay per key channel
  kGdn = 2,  // one decay per head
};

struct Geometry {
  Gate gate = Gate::kKda;
  int32_t num_heads = 32;
  int32_t num_key_heads = 32;
  int32_t value_dim = 128;
  int32_t key_dim = 128;
  int32_t window = 16;
  int32_t rank = 4;
  int32_t code_bits = 8;

  bool operator==(const Geometry&) const = default;

  int64_t state_elements() const { return int64_t{value_dim} * key_dim; }
  int64_t fp32_state_bytes() const { return state_elements() * 4; }
  // Decays of one token: one a key channel, or one.
  int64_t gate_channels() const { return gate == Gate::kKda ? key_dim : 1; }
  // Value heads that share a key head: those of key head n are the group_size() from n * group_size() on.
  int64_t group_size() const { return num_heads / num_key_heads; }
};

const char* gate_name(Gate gate);

// "kda H=32 V=128 K=128 L=16 R=4 8-bit"
std::string to_string(const Geometry& geometry);

// Whether the sizes describe a checkpoint at all: positive, at most 4096, key heads dividing value heads. What a
// backend can run is the backend's own answer.
Status check_geometry(const Geometry& geometry);

// The geometries of the format's first version, in words and as a check that names the field otherwise.
inline constexpr char kRequiredGeometryText[] =
    "gate kda, gdn; heads 1 to 4096; V = K = 128; window 16; rank 1, 2, 4, 8; 8-bit codes";
Status check_required_geometry(const Geometry& geometry, const char* backend_name);

}  // namespace leapquant
