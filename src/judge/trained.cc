// SPDX-License-Identifier: Apache-2.0
#include "judge/trained.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "judge/parallel.h"
#include "judge/program_copy.h"
#include "judge/random.h"
#include "ref/flush.h"

namespace leapquant::judge {
namespace {

// One head of one layer on one sequence.
struct Track {
  const TrajectoryLayer& layer;
  int64_t sequence;
  int64_t head;
};

// The window entries of a track's tokens, rounded as the step rounds them.
struct Entries {
  std::vector<Bfloat16> key;     // [T, K]
  std::vector<Bfloat16> update;  // [T, V]
  std::vector<Half> gate;        // [T, K]
  std::vector<float> log_gate;   // [T, K]
};

// Start token -> the programs that use it.
using Starts = std::map<int64_t, std::vector<int64_t>>;

double sigmoid(double x) { return 1 / (1 + portable_exp(-x)); }

// x above 20, log(1 + exp x) below; the quotient makes up for the rounding of 1 + exp x.
double softplus(double x) {
  if (x > 20) return x;
  const double e = portable_exp(x);
  const double rounded = 1 + e;
  return rounded == 1 ? e : portable_log(rounded) * e / (rounded - 1);
}

// The recurrence of one track.
class Recurrence {
 public:
  Recurrence(const Trajectory& trajectory, const Track& track)
      : trajectory_(trajectory),
        track_(track),
        dim_(trajectory.dim),
        state_(static_cast<size_t>(dim_ * dim_)),
        key_(static_cast<size_t>(dim_)),
        gate_(static_cast<size_t>(dim_)) {
    const auto size = static_cast<size_t>(trajectory.tokens * dim_);
    entries_ = {std::vector<Bfloat16>(size), std::vector<Bfloat16>(size), std::vector<Half>(size),
                std::vector<float>(size)};
  }

  const std::vector<double>& state() const { return state_; }  // [V, K]
  const Entries& entries() const { return entries_; }

  // Takes token t into the state and records its window entry.
  void step(int64_t t) {
    const int64_t token = (track_.sequence * trajectory_.tokens + t) * trajectory_.heads + track_.head;
    load_key(t, token);
    load_gate(t, token);
    const double beta = to_float(to_bfloat16(static_cast<float>(sigmoid(to_float(track_.layer.b[token])))));
    for (int64_t v = 0; v < dim_; ++v) {
      double* const row = state_.data() + v * dim_;
      double seen = 0;
      for (int64_t k = 0; k < dim_; ++k) {
        row[k] *= gate_[k];
        seen += row[k] * key_[k];
      }
      const double update = beta * (to_float(track_.layer.v[token * dim_ + v]) - seen);
      for (int64_t k = 0; k < dim_; ++k) row[k] += update * key_[k];
      entries_.update[t * dim_ + v] = to_bfloat16(static_cast<float>(update));
    }
  }

 private:
  // kn = kx rsqrt(sum kx^2 + 1e-6)
  void load_key(int64_t t, int64_t token) {
    double square = 1e-6;
    for (int64_t k = 0; k < dim_; ++k) {
      key_[k] = to_float(track_.layer.k[token * dim_ + k]);
      square += key_[k] * key_[k];
    }
    for (int64_t k = 0; k < dim_; ++k) {
      key_[k] /= std::sqrt(square);
      entries_.key[t * dim_ + k] = to_bfloat16(static_cast<float>(key_[k]));
    }
  }

  // g = -exp(A_log) softplus(a + dt_bias), en = exp(g)
  void load_gate(int64_t t, int64_t token) {
    const double rate = portable_exp(track_.layer.a_log[track_.head]);
    for (int64_t k = 0; k < dim_; ++k) {
      const double bias = track_.layer.dt_bias[track_.head * dim_ + k];
      const double log_gate = -rate * softplus(to_float(track_.layer.a[token * dim_ + k]) + bias);
      gate_[k] = portable_exp(log_gate);
      entries_.log_gate[t * dim_ + k] = static_cast<float>(log_gate);
      entries_.gate[t * dim_ + k] = to_half(gate_[k]);
    }
  }

  const Trajectory& trajectory_;
  Track track_;
  int64_t dim_;
  std::vector<double> state_;
  std::vector<double> key_;
  std::vector<double> gate_;
  Entries entries_;
};

void copy_window(const Geometry& geometry, const Entries& entries, int64_t start, const WindowProgram& out) {
  const int64_t key_dim = geometry.key_dim;
  const int64_t window = geometry.window;
  std::copy_n(entries.key.begin() + start * key_dim, window * key_dim, out.window_key);
  std::copy_n(entries.update.begin() + start * geometry.value_dim, window * geometry.value_dim, out.window_update);
  std::copy_n(entries.gate.begin() + start * key_dim, window * key_dim, out.window_gate);
  std::fill_n(out.window_weight, window, 1.0f);
  std::fill_n(out.log_decay, key_dim, 0.0f);
  for (int64_t j = 0; j < window; ++j) {
    for (int64_t k = 0; k < key_dim; ++k) out.log_decay[k] += entries.log_gate[(start + j) * key_dim + k];
  }
}

// Fills every program of one track.
void draw_track(const Trajectory& trajectory, const Track& track, const Starts& starts, const FlushInputs& inputs) {
  if (starts.empty()) return;
  const Geometry& geometry = inputs.geometry;
  const auto checkpoint_at = [&](int64_t program) {
    return inputs.checkpoint.view().at(program / geometry.num_heads, program % geometry.num_heads);
  };
  const auto window_at = [&](int64_t program) {
    return inputs.window.view().at(program / geometry.num_heads, program % geometry.num_heads);
  };
  Recurrence recurrence(trajectory, track);
  const int64_t end = starts.rbegin()->first + geometry.window;
  for (int64_t t = 0; t < end; ++t) {
    if (const auto found = starts.find(t); found != starts.end()) {
      const std::vector<double>& state = recurrence.state();
      const CheckpointProgram target = checkpoint_at(found->second.front());
      ref::quantize_residual<double>(geometry, state, ref::compress_state<double>(geometry, state, inputs.q0.data()),
                                     target);
      for (const int64_t program : found->second) {
        if (program != found->second.front()) copy_checkpoint(geometry, target, checkpoint_at(program));
      }
    }
    recurrence.step(t);
  }
  for (const auto& [start, programs] : starts) {
    for (const int64_t program : programs) copy_window(geometry, recurrence.entries(), start, window_at(program));
  }
}

// A step through `count` starts that visits each before it repeats one, in jumps of about the golden section.
int64_t coprime_stride(int64_t count) {
  int64_t stride = std::max<int64_t>(1, count * 618 / 1000);
  while (std::gcd(stride, count) != 1) ++stride;
  return stride;
}

std::vector<Track> tracks_of(const Trajectory& trajectory) {
  std::vector<Track> tracks;
  for (const TrajectoryLayer& layer : trajectory.layers) {
    for (int64_t sequence = 0; sequence < trajectory.sequences; ++sequence) {
      for (int64_t head = 0; head < trajectory.heads; ++head) tracks.push_back({layer, sequence, head});
    }
  }
  return tracks;
}

}  // namespace

int64_t trained_start(int64_t start_count, uint64_t seed, int64_t turn) {
  const auto first = static_cast<int64_t>(seed % static_cast<uint64_t>(start_count));
  return (turn + first) * coprime_stride(start_count) % start_count;
}

Status draw_trained(const Trajectory& trajectory, uint64_t seed, int threads, FlushInputs& inputs) {
  const Geometry& geometry = inputs.geometry;
  const int64_t start_count = trajectory.tokens - geometry.window + 1;
  if (geometry.key_dim != trajectory.dim || geometry.value_dim != trajectory.dim || start_count < 1) {
    return unsupported("family 'trained': the recorded model has V = K = " + std::to_string(trajectory.dim) +
                       " and sequences of " + std::to_string(trajectory.tokens) + " tokens, got " +
                       to_string(geometry));
  }
  const std::vector<Track> tracks = tracks_of(trajectory);
  const auto track_count = static_cast<int64_t>(tracks.size());
  std::vector<Starts> starts(tracks.size());
  for (int64_t program = 0; program < inputs.programs(); ++program) {
    starts[program % track_count][trained_start(start_count, seed, program / track_count)].push_back(program);
  }
  parallel_for(track_count, threads, [&](int64_t n) { draw_track(trajectory, tracks[n], starts[n], inputs); });
  return {};
}

}  // namespace leapquant::judge
