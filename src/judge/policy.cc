// SPDX-License-Identifier: Apache-2.0
#include "judge/policy.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "judge/structured.h"

namespace leapquant::judge {
namespace {

struct Program {
  const Geometry& geometry;
  const ProgramKey& key;
  CheckpointProgram checkpoint;
  WindowProgram window;
};

// A window that changes nothing.
void set_idle_window(const Program& p) {
  const int64_t window = p.geometry.window;
  std::fill_n(p.window.window_key, window * p.geometry.key_dim, Bfloat16{0});
  std::fill_n(p.window.window_update, window * p.geometry.value_dim, Bfloat16{0});
  std::fill_n(p.window.window_weight, window, 0.0f);
  if (p.geometry.gate == Gate::kGdn) {
    *p.window.decay = 1.0f;
    return;
  }
  std::fill_n(p.window.window_gate, window * p.geometry.key_dim, Half{kHalfOne});
  std::fill_n(p.window.log_decay, p.geometry.key_dim, 0.0f);
}

// A checkpoint of equal codes and flat scales: every element of the state is code / 127 * key_scale.
void set_flat_checkpoint(const Program& p, int8_t code, double key_scale) {
  std::fill_n(p.checkpoint.codes, p.geometry.state_elements(), code);
  std::fill_n(p.checkpoint.key_scale, p.geometry.key_dim, static_cast<float>(key_scale));
  std::fill_n(p.checkpoint.value_scale, p.geometry.value_dim, 1.0f);
  clear_factors(p.geometry, p.checkpoint);
}

void draw_constant(const Program& p, double value) {
  set_flat_checkpoint(p, 127, value);
  set_idle_window(p);
}

void draw_zero(const Program& p, double /*unused*/) {
  set_flat_checkpoint(p, 0, 1);
  set_idle_window(p);
}

void draw_tiny(const Program& p, double size) {
  RandomStream stream = program_stream(p.key, Part::kPolicy);
  set_flat_checkpoint(p, 0, size);
  draw_uniform_codes(stream, p.geometry.state_elements(), p.checkpoint.codes);
  set_idle_window(p);
}

void draw_decayed(const Program& p, double log_decay) {
  draw_random_checkpoint(p.geometry, p.key, p.checkpoint);
  set_idle_window(p);
  if (p.geometry.gate == Gate::kGdn) {
    *p.window.decay = static_cast<float>(portable_exp(log_decay));
    return;
  }
  std::fill_n(p.window.log_decay, p.geometry.key_dim, static_cast<float>(log_decay));
}

// A sum of `rank` window entries, every second key column a copy of the one before it.
void draw_repeated_columns(const Program& p, double rank) {
  draw_zero(p, 0);
  RandomStream stream = program_stream(p.key, Part::kPolicy);
  const auto entries = static_cast<int64_t>(rank);
  const int64_t key_dim = p.geometry.key_dim;
  draw_normal(stream, 1, entries * key_dim, p.window.window_key);
  draw_normal(stream, 1, entries * p.geometry.value_dim, p.window.window_update);
  for (int64_t i = 0; i + 1 < entries * key_dim; i += 2) p.window.window_key[i + 1] = p.window.window_key[i];
  std::fill_n(p.window.window_weight, entries, 1.0f);
}

// Four window entries, each `step` times the size of the one before it: nearly rank deficient.
void draw_graded(const Program& p, double step) {
  draw_zero(p, 0);
  RandomStream stream = program_stream(p.key, Part::kPolicy);
  double size = 1;
  for (int64_t j = 0; j < 4; ++j) {
    draw_normal(stream, 1, p.geometry.key_dim, p.window.window_key + j * p.geometry.key_dim);
    draw_normal(stream, size, p.geometry.value_dim, p.window.window_update + j * p.geometry.value_dim);
    p.window.window_weight[j] = 1.0f;
    size *= step;
  }
}

// Gates of 0, of the smallest normal fp16 and of 1; or a product of gates that is subnormal.
void draw_extreme_gates(const Program& p, double /*unused*/) {
  draw_structured_checkpoint(p.geometry, p.key, p.checkpoint);
  draw_random_window(p.geometry, p.key, p.window);
  if (p.geometry.gate == Gate::kGdn) {
    *p.window.decay = 2e-41f;
    return;
  }
  constexpr std::array<Half, 3> kGates = {Half{0x0000u}, Half{0x0400u}, Half{kHalfOne}};
  RandomStream stream = program_stream(p.key, Part::kPolicy);
  for (int64_t i = 0; i < int64_t{p.geometry.window} * p.geometry.key_dim; ++i) {
    p.window.window_gate[i] = kGates[stream.bits() % kGates.size()];
  }
}

// Makes entry j one of weight zero whose key and update hold NaN and Inf.
void spoil_entry(const Program& p, int64_t j) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  p.window.window_weight[j] = 0.0f;
  std::fill_n(p.window.window_key + j * p.geometry.key_dim, p.geometry.key_dim, to_bfloat16(nan));
  std::fill_n(p.window.window_update + j * p.geometry.value_dim, p.geometry.value_dim, to_bfloat16(infinity));
}

// A staggered start: the first entries have weight zero, as has the last one. No live entry's decay includes the gates
// of the first entries, so those hold NaN as well.
void draw_spoiled_entries(const Program& p, double count) {
  draw_structured_checkpoint(p.geometry, p.key, p.checkpoint);
  draw_structured_window(p.geometry, p.key, Part::kPolicy, p.window);
  const Half nan = to_half(std::numeric_limits<float>::quiet_NaN());
  for (int64_t j = 0; j < static_cast<int64_t>(count); ++j) {
    spoil_entry(p, j);
    if (p.geometry.gate == Gate::kGdn) continue;
    std::fill_n(p.window.window_gate + j * p.geometry.key_dim, p.geometry.key_dim, nan);
  }
  spoil_entry(p, p.geometry.window - 1);
}

struct PolicyCase {
  const char* name;
  void (*draw)(const Program&, double);
  double value;
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void add_multiple(std::vector<double>& sum, double factor, const std::vector<double>& term) {
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += factor * term[i];
}

constexpr std::array kCases = {
    PolicyCase{"constant 0.001", draw_constant, 1e-3},
    PolicyCase{"constant 0.1", draw_constant, 0.1},
    PolicyCase{"constant 1", draw_constant, 1},
    PolicyCase{"constant 70", draw_constant, 70},
    PolicyCase{"constant 5000", draw_constant, 5000},
    PolicyCase{"constant 6000", draw_constant, 6000},
    PolicyCase{"zero", draw_zero, 0},
    PolicyCase{"tiny 1e-19", draw_tiny, 1e-19},
    PolicyCase{"tiny 1e-22", draw_tiny, 1e-22},
    PolicyCase{"tiny 1e-30", draw_tiny, 1e-30},
    PolicyCase{"log-decay -50", draw_decayed, -50},
    PolicyCase{"log-decay -60", draw_decayed, -60},
    PolicyCase{"log-decay -95", draw_decayed, -95},
    PolicyCase{"log-decay -1000", draw_decayed, -1000},
    PolicyCase{"repeated columns, rank 1", draw_repeated_columns, 1},
    PolicyCase{"repeated columns, rank 2", draw_repeated_columns, 2},
    PolicyCase{"repeated columns, rank 3", draw_repeated_columns, 3},
    PolicyCase{"graded by 1e-2", draw_graded, 1e-2},
    PolicyCase{"graded by 1e-4", draw_graded, 1e-4},
    PolicyCase{"graded by 1e-6", draw_graded, 1e-6},
    PolicyCase{"gates 0, 2^-14 and 1", draw_extreme_gates, 0},
    PolicyCase{"one spoiled entry", draw_spoiled_entries, 1},
    PolicyCase{"five spoiled entries", draw_spoiled_entries, 5},
};

}  // namespace

int64_t policy_case_count() { return static_cast<int64_t>(kCases.size()); }

const char* policy_case_name(int64_t index) { return kCases[static_cast<size_t>(index)].name; }

int64_t policy_case_of(const Geometry& geometry, int64_t item, int64_t head) {
  return (item * geometry.num_heads + head) % policy_case_count();
}

void draw_policy_program(const Geometry& geometry, const ProgramKey& key, int64_t case_index,
                         const CheckpointProgram& checkpoint, const WindowProgram& window) {
  const PolicyCase& chosen = kCases[static_cast<size_t>(case_index)];
  chosen.draw({geometry, key, checkpoint, window}, chosen.value);
}

std::vector<float> orthonormal_start_basis(const Geometry& geometry, uint64_t seed) {
  const int64_t rank = geometry.rank;
  const int64_t value_dim = geometry.value_dim;
  RandomStream stream({seed, static_cast<uint64_t>(Part::kPolicy)});
  std::vector<std::vector<double>> columns;
  for (int64_t r = 0; r < rank; ++r) {
    std::vector<double> column(static_cast<size_t>(value_dim));
    for (double& value : column) value = stream.normal();
    for (const std::vector<double>& earlier : columns) add_multiple(column, -dot(earlier, column), earlier);
    const double length = std::sqrt(dot(column, column));
    for (double& value : column) value /= length;
    columns.push_back(std::move(column));
  }
  std::vector<float> start_basis(static_cast<size_t>(value_dim) * rank);
  for (int64_t v = 0; v < value_dim; ++v) {
    for (int64_t r = 0; r < rank; ++r) start_basis[v * rank + r] = static_cast<float>(columns[r][v]);
  }
  return start_basis;
}

}  // namespace leapquant::judge
