// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint_stats.h"

#include <algorithm>
#include <cmath>

#include "core/numerics.h"

namespace leapquant::io {
namespace {

bool sorts_below(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

// Row v of a program's state: sum_r q[r,v] u[r,k] + codes[v,k] (s_k[k] / 127) s_v[v]. `program` counts B x H.
class RowDecoder {
 public:
  explicit RowDecoder(const ProgramFile& file)
      : geometry_(file.geometry),
        codes_(file.at("codes").as<int8_t>()),
        key_scale_(file.at("s_k").as<float>()),
        value_scale_(file.at("s_v").as<float>()),
        key_factor_(file.at("u").as<Half>()),
        value_factor_(file.at("q").as<Half>()) {}

  void decode(int64_t program, int64_t v, std::span<double> row) const {
    const int64_t key_dim = geometry_.key_dim;
    const int64_t state_row = program * geometry_.value_dim + v;
    for (int64_t k = 0; k < key_dim; ++k) {
      row[k] = codes_[state_row * key_dim + k] * (double{key_scale_[program * key_dim + k]} / kCodeMax) *
               value_scale_[state_row];
    }
    for (int64_t r = 0; r < geometry_.rank; ++r) {
      const int64_t factor_row = program * geometry_.rank + r;
      const double value_factor = to_float(value_factor_[factor_row * geometry_.value_dim + v]);
      for (int64_t k = 0; k < key_dim; ++k) row[k] += value_factor * to_float(key_factor_[factor_row * key_dim + k]);
    }
  }

 private:
  Geometry geometry_;
  std::span<const int8_t> codes_;
  std::span<const float> key_scale_;
  std::span<const float> value_scale_;
  std::span<const Half> key_factor_;
  std::span<const Half> value_factor_;
};

void add_row(std::span<const double> row, HeadStats& stats, double& sum) {
  for (const double value : row) {
    if (!std::isfinite(value)) {
      ++stats.nonfinite;
      continue;
    }
    sum += std::fabs(value);
    stats.max_abs = std::max(stats.max_abs, std::fabs(value));
  }
}

}  // namespace

Spread spread_of(std::span<const float> values) {
  std::vector<float> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end(), sorts_below);
  return {*std::min_element(sorted.begin(), sorted.end(), sorts_below), *middle,
          *std::max_element(sorted.begin(), sorted.end(), sorts_below)};
}

CodeStats code_stats(const ProgramFile& file) {
  CodeStats stats;
  const std::span<const int8_t> codes = file.at("codes").as<int8_t>();
  const auto program_codes = static_cast<size_t>(file.geometry.state_elements());
  for (size_t begin = 0; begin < codes.size(); begin += program_codes) {
    bool all_zero = true;
    for (const int8_t code : codes.subspan(begin, program_codes)) {
      ++stats.count[static_cast<size_t>(code + 128)];
      all_zero = all_zero && code == 0;
    }
    stats.zero_programs += all_zero ? 1 : 0;
  }
  return stats;
}

std::vector<HeadStats> state_stats(const ProgramFile& file) {
  const Geometry& geometry = file.geometry;
  const RowDecoder decoder(file);
  std::vector<HeadStats> heads(static_cast<size_t>(geometry.num_heads));
  std::vector<double> row(static_cast<size_t>(geometry.key_dim));
  for (int64_t head = 0; head < geometry.num_heads; ++head) {
    HeadStats& stats = heads[static_cast<size_t>(head)];
    double sum = 0;
    for (int64_t item = 0; item < file.batch; ++item) {
      for (int64_t v = 0; v < geometry.value_dim; ++v) {
        decoder.decode(item * geometry.num_heads + head, v, row);
        add_row(row, stats, sum);
      }
    }
    const int64_t finite = file.batch * geometry.state_elements() - stats.nonfinite;
    stats.mean_abs = finite == 0 ? 0.0 : sum / static_cast<double>(finite);
  }
  return heads;
}

}  // namespace leapquant::io
