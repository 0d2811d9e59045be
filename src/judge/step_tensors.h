// SPDX-License-Identifier: Apache-2.0
//
// Owning, contiguous tensors of a functional step, under their wire names.
#pragma once

#include <cstdint>
#include <tuple>
#include <vector>

#include "core/token_view.h"
#include "judge/tensors.h"

namespace leapquant::judge {

// Tokens of [batch, H] programs. Holds pre-activations and given gates: a gate rule takes one or the other. C is the
// number of a token's decays: K, or 1 for GDN, whose tensors lack that dimension.
struct TokenTensors {
  TokenTensors() = default;
  TokenTensors(const Geometry& geometry, int64_t batch);
  TokenView view() const;

  Geometry geometry;
  std::vector<Bfloat16> qx;     // [B, H_k, K]
  std::vector<Bfloat16> kx;     // [B, H_k, K]
  std::vector<Bfloat16> vx;     // [B, H, V]
  std::vector<Bfloat16> a;      // [B, H, C]
  std::vector<Bfloat16> b;      // [B, H]
  std::vector<float> A_log;     // [H]
  std::vector<float> dt_bias;   // [H, C]
  std::vector<float> log_gate;  // [B, H, C]
};

// All that one step reads.
struct StepInputs {
  Geometry geometry;
  int64_t batch = 0;
  CheckpointTensors checkpoint;
  WindowTensors window;
  std::vector<int32_t> h;  // [B, H] occupied entries
  TokenTensors token;
  GateRule gate;

  int64_t programs() const { return batch * geometry.num_heads; }
};

// All that one step gives.
struct StepTensors {
  StepTensors() = default;
  StepTensors(const Geometry& geometry, int64_t batch);

  // The rows of program `n`, counted as item * H + head; its weights and, for GDN, its decay.
  StepRows rows(int64_t n);
  WindowProgram weights(int64_t n);
  auto all() { return std::tie(o, k_row, u_row, g_row, w_new, pcum_new, p_new); }
  auto all() const { return std::tie(o, k_row, u_row, g_row, w_new, pcum_new, p_new); }

  Geometry geometry;
  std::vector<Bfloat16> o;      // [B, H, V]
  std::vector<Bfloat16> k_row;  // [B, H, K]
  std::vector<Bfloat16> u_row;  // [B, H, V]
  std::vector<Half> g_row;      // [B, H, K] KDA
  std::vector<float> w_new;     // [B, H, L]
  std::vector<float> pcum_new;  // [B, H, K] KDA
  std::vector<float> p_new;     // [B, H] GDN
};

}  // namespace leapquant::judge
