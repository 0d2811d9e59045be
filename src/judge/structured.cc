// SPDX-License-Identifier: Apache-2.0
#include "judge/structured.h"

#include <algorithm>

namespace leapquant::judge {
namespace {

constexpr int64_t kLoudRow = 5;  // a value row far larger than the others
constexpr double kLoudRowFactor = 30;
constexpr int64_t kUndecayedChannelCount = 32;
constexpr double kStrongDecay = -200;  // added to the log-decay

// What an edge multiplies the drawn numbers by. A factor of zero empties them.
struct EdgeSizes {
  double codes = 1;
  double key_scale = 1;
  double key_factor = 1;
  double value_factor = 1;
  double window_key = 1;
  double window_update = 1;
};

EdgeSizes sizes_of(Edge edge) {
  switch (edge) {
    case Edge::kRankOne:
    case Edge::kRankTwo:
      return {.codes = 0, .key_factor = 0, .value_factor = 0};
    case Edge::kZero:
      return {.codes = 0, .key_factor = 0, .value_factor = 0, .window_key = 0, .window_update = 0};
    case Edge::kTiny:
      return {.key_scale = 1e-4, .key_factor = 1e-2, .window_update = 1e-4};
    case Edge::kHuge:
      return {.key_scale = 3e2, .key_factor = 17, .window_update = 3e2};
    case Edge::kRankOneFaintCodes:
      return {.key_scale = 1e-6, .key_factor = 0, .value_factor = 0};
    default:
      return {};
  }
}

// Entries that count: their weights are 1, the others' 0.
int64_t live_entries(const Geometry& geometry, Edge edge) {
  switch (edge) {
    case Edge::kZero:
      return 0;
    case Edge::kRankOne:
    case Edge::kRankOneFaintCodes:
      return 1;
    case Edge::kRankTwo:
      return 2;
    default:
      return geometry.window;
  }
}

// GDN: weights that have decayed, and the product of the gates.
void draw_scalar_decay(RandomStream& stream, double least, const Geometry& geometry, const WindowProgram& out) {
  for (int64_t j = 0; j < geometry.window; ++j) out.window_weight[j] *= static_cast<float>(stream.uniform(0, 1));
  *out.decay = static_cast<float>(stream.uniform(least, 1));
}

// Gates, and the log-decay that they add up to, less a little that earlier windows left.
void draw_decay(RandomStream& stream, const Geometry& geometry, Edge edge, const WindowProgram& out) {
  const int64_t key_dim = geometry.key_dim;
  draw_uniform(stream, 0.6, 1, int64_t{geometry.window} * key_dim, out.window_gate);
  for (int64_t k = 0; k < key_dim; ++k) {
    double sum = -stream.uniform(0, 0.5);
    for (int64_t j = 0; j < geometry.window; ++j) {
      sum += portable_log(static_cast<double>(to_float(out.window_gate[j * key_dim + k])));
    }
    out.log_decay[k] = static_cast<float>(edge == Edge::kStrongDecay ? sum + kStrongDecay : sum);
  }
  if (edge != Edge::kUndecayedChannels) return;
  const int64_t undecayed = std::min(kUndecayedChannelCount, key_dim);
  for (int64_t j = 0; j < geometry.window; ++j) std::fill_n(out.window_gate + j * key_dim, undecayed, Half{kHalfOne});
  std::fill_n(out.log_decay, undecayed, 0.0f);
}

}  // namespace

Edge edge_of(const Geometry& geometry, int64_t item, int64_t head) {
  const int64_t edges = geometry.gate == Gate::kKda ? kEdgeCount : kGdnEdgeCount;
  if (geometry.num_heads >= edges) return head < edges ? static_cast<Edge>(head) : Edge::kNone;
  return static_cast<Edge>((item * geometry.num_heads + head) % edges);
}

void draw_structured_checkpoint(const Geometry& geometry, const ProgramKey& key, const CheckpointProgram& out) {
  const EdgeSizes sizes = sizes_of(edge_of(geometry, key.item, key.head));
  RandomStream stream = program_stream(key, Part::kStructuredCheckpoint);
  for (int64_t i = 0; i < geometry.state_elements(); ++i) {
    out.codes[i] = static_cast<int8_t>(sizes.codes * std::clamp(std::nearbyint(40 * stream.normal()), -127.0, 127.0));
  }
  draw_uniform(stream, 0.05 * sizes.key_scale, 0.25 * sizes.key_scale, geometry.key_dim, out.key_scale);
  draw_uniform(stream, 0.1, 0.6, geometry.value_dim, out.value_scale);
  if (geometry.value_dim > kLoudRow) out.value_scale[kLoudRow] *= static_cast<float>(kLoudRowFactor);
  draw_factors(stream, geometry, 0.5 * sizes.key_factor, 0.5 * sizes.value_factor, out);
}

void draw_structured_window(const Geometry& geometry, const ProgramKey& key, Part part, const WindowProgram& out) {
  const Edge edge = edge_of(geometry, key.item, key.head);
  const EdgeSizes sizes = sizes_of(edge);
  RandomStream stream = program_stream(key, part);
  const int64_t window = geometry.window;
  draw_normal(stream, 0.3 * sizes.window_key, window * geometry.key_dim, out.window_key);
  draw_normal(stream, 0.3 * sizes.window_update, window * geometry.value_dim, out.window_update);
  const int64_t live = live_entries(geometry, edge);
  for (int64_t j = 0; j < window; ++j) out.window_weight[j] = j < live ? 1.0f : 0.0f;
  if (geometry.gate == Gate::kGdn) return draw_scalar_decay(stream, 0.5, geometry, out);
  draw_decay(stream, geometry, edge, out);
}

void draw_random_checkpoint(const Geometry& geometry, const ProgramKey& key, const CheckpointProgram& out) {
  RandomStream stream = program_stream(key, Part::kRandomCheckpoint);
  draw_uniform_codes(stream, geometry.state_elements(), out.codes);
  for (int64_t k = 0; k < geometry.key_dim; ++k) {
    out.key_scale[k] = static_cast<float>(0.05 * portable_exp(0.7 * stream.normal()));
  }
  for (int64_t v = 0; v < geometry.value_dim; ++v) {
    out.value_scale[v] = static_cast<float>(0.3 * portable_exp(0.7 * stream.normal()));
  }
  draw_factors(stream, geometry, 1, 1, out);
}

void draw_random_window(const Geometry& geometry, const ProgramKey& key, const WindowProgram& out) {
  RandomStream stream = program_stream(key, Part::kRandomWindow);
  const int64_t window = geometry.window;
  draw_normal(stream, 1, window * geometry.key_dim, out.window_key);
  draw_normal(stream, 1, window * geometry.value_dim, out.window_update);
  if (geometry.gate == Gate::kGdn) {
    std::fill_n(out.window_weight, window, 1.0f);
    return draw_scalar_decay(stream, 0.001, geometry, out);
  }
  draw_uniform(stream, 0, 1, window, out.window_weight);
  draw_uniform(stream, 0.001, 1, window * geometry.key_dim, out.window_gate);
  draw_uniform(stream, -20, 0, geometry.key_dim, out.log_decay);
}

}  // namespace leapquant::judge
