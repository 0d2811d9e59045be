// SPDX-License-Identifier: Apache-2.0
//
// The recorded step inputs of a trained model's layers: data/kda_trajectory.safetensors, described in data/README.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/numerics.h"
#include "core/status.h"

namespace leapquant::judge {

// T tokens of N sequences through one layer of H heads. The key and the value dimension are both D.
struct TrajectoryLayer {
  std::vector<Bfloat16> q;     // [N, T, H, D]
  std::vector<Bfloat16> k;     // [N, T, H, D]
  std::vector<Bfloat16> v;     // [N, T, H, D]
  std::vector<Bfloat16> a;     // [N, T, H, D] gate pre-activations
  std::vector<Bfloat16> b;     // [N, T, H]    beta pre-activations
  std::vector<float> a_log;    // [H]
  std::vector<float> dt_bias;  // [H, D]
};

struct Trajectory {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  std::vector<TrajectoryLayer> layers;
};

// Reads the trajectory in `directory`; empty: from $LQ_DATA_DIR, the source tree or the installed share folder.
Result<Trajectory> read_trajectory(const std::string& directory);

}  // namespace leapquant::judge
