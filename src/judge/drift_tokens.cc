// SPDX-License-Identifier: Apache-2.0
#include "judge/drift_tokens.h"

#include <cmath>

namespace leapquant::judge {
namespace {

constexpr uint64_t kDriftStream = 0xD21F7;
constexpr int64_t kOutlierChannels = 4;

class DrawnTokens final : public DriftTokens {
 public:
  DrawnTokens(const DriftDraw& draw, uint64_t seed, int64_t head)
      : draw_(draw), stream_({seed, kDriftStream, static_cast<uint64_t>(head)}) {
    log_rate_ = static_cast<float>(portable_log(stream_.uniform(draw.lowest_rate, draw.highest_rate)));
    const double low = portable_log(draw.lowest_step);
    const double high = portable_log(draw.highest_step);
    for (float& bias : gate_bias_) {
      const double step = portable_exp(stream_.uniform(low, high));
      bias = static_cast<float>(step + portable_log(-std::expm1(-step)));  // softplus(bias) = step
    }
  }

  TokenProgram next() override {
    draw_silu(query_, 1);
    draw_silu(key_, draw_.outlier);
    draw_silu(value_, draw_.outlier);
    for (Bfloat16& input : gate_input_) input = to_bfloat16(static_cast<float>(0.5 * stream_.normal()));
    beta_input_ = to_bfloat16(static_cast<float>(draw_.beta_input + stream_.normal()));
    return {query_.data(),      key_.data(), value_.data(),     &beta_input_,
            gate_input_.data(), &log_rate_,  gate_bias_.data(), nullptr};
  }

 private:
  using Row = std::array<Bfloat16, kDriftDim>;

  void draw_silu(Row& row, double outlier) {
    for (int64_t i = 0; i < kDriftDim; ++i) {
      const double x = stream_.normal();
      const double factor = i % (kDriftDim / kOutlierChannels) == 7 ? outlier : 1;
      row[static_cast<size_t>(i)] = to_bfloat16(static_cast<float>(factor * x / (1 + portable_exp(-x))));
    }
  }

  DriftDraw draw_;
  RandomStream stream_;
  float log_rate_;
  std::array<float, kDriftDim> gate_bias_;
  Row query_, key_, value_, gate_input_;
  Bfloat16 beta_input_;
};

class RecordedTokens final : public DriftTokens {
 public:
  RecordedTokens(const Trajectory& trajectory, int64_t layer, int64_t head)
      : trajectory_(trajectory), layer_(trajectory.layers[static_cast<size_t>(layer)]), head_(head) {}

  TokenProgram next() override {
    const int64_t row = token_ % (trajectory_.sequences * trajectory_.tokens) * trajectory_.heads + head_;
    ++token_;
    const int64_t dim = trajectory_.dim;
    return {layer_.q.data() + row * dim,         layer_.k.data() + row * dim,
            layer_.v.data() + row * dim,         layer_.b.data() + row,
            layer_.a.data() + row * dim,         layer_.a_log.data() + head_,
            layer_.dt_bias.data() + head_ * dim, nullptr};
  }

 private:
  const Trajectory& trajectory_;
  const TrajectoryLayer& layer_;
  int64_t head_;
  int64_t token_ = 0;
};

}  // namespace

std::unique_ptr<DriftTokens> drawn_tokens(const DriftDraw& draw, uint64_t seed, int64_t head) {
  return std::make_unique<DrawnTokens>(draw, seed, head);
}

std::unique_ptr<DriftTokens> recorded_tokens(const Trajectory& trajectory, int64_t layer, int64_t head) {
  return std::make_unique<RecordedTokens>(trajectory, layer, head);
}

}  // namespace leapquant::judge
