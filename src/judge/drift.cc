// SPDX-License-Identifier: Apache-2.0
#include "judge/drift.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>

#include "core/checkpoint_layout.h"
#include "judge/dense_recurrence.h"
#include "judge/drift_tokens.h"
#include "judge/parallel.h"
#include "judge/verify_step.h"

namespace leapquant::judge {
namespace {

constexpr int64_t kElements = kDriftDim * kDriftDim;
constexpr size_t kStates = 5;
constexpr std::array<const char*, kStates> kStateNames = {"leapquant", "fp32", "bf16", "fp16", "int8"};

using Rounding = void (*)(std::span<float> state);

void keep_fp32(std::span<float> /*state*/) {}

void round_bf16(std::span<float> state) {
  for (float& value : state) value = to_float(to_bfloat16(value));
}

void round_fp16(std::span<float> state) {
  for (float& value : state) value = to_float(saturate_to_half(value));
}

void round_int8(std::span<float> state) {
  for (int64_t v = 0; v < kDriftDim; ++v) {
    const std::span<float> row = state.subspan(static_cast<size_t>(v * kDriftDim), kDriftDim);
    float largest = 0;
    for (const float value : row) largest = std::max(largest, std::fabs(value));
    if (largest == 0) continue;
    const float scale = largest / kCodeMax;
    for (float& value : row) value = std::nearbyint(value / scale) * scale;
  }
}

// The dense ones, in the order of kStateNames.
constexpr std::array<Rounding, kStates - 1> kRoundings = {keep_fp32, round_bf16, round_fp16, round_int8};

std::array<int64_t, kStates> bytes_per_head(const Geometry& geometry) {
  return {region_offsets(geometry).end + window_program_bytes(geometry), 4 * kElements, 2 * kElements, 2 * kElements,
          kElements + 4 * kDriftDim};
}

Geometry drift_geometry(Gate gate, int64_t heads) {
  Geometry geometry;
  geometry.gate = gate;
  geometry.num_heads = geometry.num_key_heads = static_cast<int32_t>(heads);
  return geometry;
}

// Heads of all profiles, one profile after another; the recorded one, where there is one, is last.
class Heads {
 public:
  explicit Heads(std::optional<Trajectory> trajectory) : trajectory_(std::move(trajectory)) {}

  int64_t profiles() const { return std::ssize(kDriftDraws) + (trajectory_ ? 1 : 0); }
  int64_t count() const { return profiles() * kProfileHeads; }

  DriftProfile profile(int64_t n) const {
    if (n < std::ssize(kDriftDraws)) {
      const DriftDraw& draw = kDriftDraws[static_cast<size_t>(n)];
      return {draw.name, draw.description, kProfileHeads, {}};
    }
    return {"trained",
            "recorded in a trained model: two layers, two heads each, their texts over and over",
            kProfileHeads,
            {}};
  }

  std::unique_ptr<DriftTokens> tokens(uint64_t seed, int64_t head) const {
    const int64_t profile = head / kProfileHeads;
    if (profile < std::ssize(kDriftDraws)) return drawn_tokens(kDriftDraws[static_cast<size_t>(profile)], seed, head);
    const int64_t n = head % kProfileHeads;
    return recorded_tokens(*trajectory_, n / trajectory_->heads, n % trajectory_->heads);
  }

 private:
  std::optional<Trajectory> trajectory_;
};

// What the pool gave: outputs of every token, states at every record.
struct PoolRun {
  std::vector<Bfloat16> outputs;           // [T, H, V]
  std::vector<std::vector<float>> states;  // [records] of [H, V, K]
};

void copy_token(const TokenProgram& from, int64_t head, TokenTensors& to) {
  const int64_t row = head * kDriftDim;
  std::copy_n(from.query, kDriftDim, to.qx.begin() + row);
  std::copy_n(from.key, kDriftDim, to.kx.begin() + row);
  std::copy_n(from.value, kDriftDim, to.vx.begin() + row);
  const int64_t channels = to.geometry.gate_channels();
  std::copy_n(from.gate_input, channels, to.a.begin() + head * channels);
  std::copy_n(from.gate_bias, channels, to.dt_bias.begin() + head * channels);
  to.A_log[static_cast<size_t>(head)] = *from.log_rate;
  to.b[static_cast<size_t>(head)] = *from.beta_input;
}

std::vector<float> start_basis(const Geometry& geometry, uint64_t seed) {
  std::vector<float> basis(static_cast<size_t>(geometry.value_dim) * geometry.rank);
  RandomStream stream({seed, 0xBA515});
  for (float& value : basis) value = static_cast<float>(stream.normal());
  return basis;
}

PoolRun run_pool(const Context& context, const DriftRequest& request, const Heads& heads,
                 const std::function<void(double)>& progress) {
  const Geometry geometry = drift_geometry(request.gate, heads.count());
  const Pool pool(context, public_geometry(geometry), 2);
  StepInputs inputs;
  inputs.geometry = geometry;
  inputs.batch = 1;
  inputs.token = TokenTensors(geometry, 1);
  const lq_token token = public_token(inputs);
  std::vector<float> basis = start_basis(geometry, request.seed);
  const lq_tensor q0 = tensor(basis.data(), LQ_FLOAT32, {geometry.value_dim, geometry.rank});
  int32_t slot = 1;
  const lq_tensor idx = tensor(&slot, LQ_INT32, {1});

  std::vector<std::unique_ptr<DriftTokens>> streams;
  for (int64_t head = 0; head < heads.count(); ++head) streams.push_back(heads.tokens(request.seed, head));
  const int64_t row = heads.count() * kDriftDim;
  PoolRun run;
  run.outputs.resize(static_cast<size_t>(request.tokens * row));
  for (int64_t t = 0; t < request.tokens; ++t) {
    for (int64_t head = 0; head < heads.count(); ++head) {
      copy_token(streams[static_cast<size_t>(head)]->next(), head, inputs.token);
    }
    pool.step_flush_inplace(idx, token, q0,
                            tensor(run.outputs.data() + t * row, LQ_BFLOAT16, {1, heads.count(), kDriftDim}));
    if ((t + 1) % request.interval != 0) continue;
    std::vector<float>& states = run.states.emplace_back(static_cast<size_t>(heads.count() * kElements));
    pool.export_state(idx, tensor(states.data(), LQ_FLOAT32, {1, heads.count(), kDriftDim, kDriftDim}));
    progress(0.2 * static_cast<double>(t + 1) / static_cast<double>(request.tokens));
  }
  return run;
}

// Squared distance to what is exact, and its square, summed.
struct Distance {
  double difference = 0;
  double size = 0;

  void add(double seen, double exact) {
    difference += (seen - exact) * (seen - exact);
    size += exact * exact;
  }
  double relative() const { return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size); }
};

// The errors of one head's states at each record.
struct HeadErrors {
  std::array<std::vector<double>, kStates> state;
  std::array<std::vector<double>, kStates> output;
};

HeadErrors head_errors(const DriftRequest& request, const Heads& heads, const PoolRun& pool, int64_t head) {
  const Geometry geometry = drift_geometry(request.gate, 1);
  const std::unique_ptr<DriftTokens> tokens = heads.tokens(request.seed, head);
  DenseRecurrence<double> exact(geometry);
  std::vector<DenseRecurrence<float>> dense(kRoundings.size(), DenseRecurrence<float>(geometry));
  std::array<Distance, kStates> output{};
  HeadErrors errors;
  for (int64_t t = 0; t < request.tokens; ++t) {
    const TokenProgram token = tokens->next();
    const std::vector<double>& wanted = exact.step(token);
    const Bfloat16* const pool_output = pool.outputs.data() + (t * heads.count() + head) * kDriftDim;
    for (size_t v = 0; v < wanted.size(); ++v) output[0].add(to_float(pool_output[v]), wanted[v]);
    for (size_t n = 0; n < dense.size(); ++n) {
      const std::vector<float>& seen = dense[n].step(token);
      for (size_t v = 0; v < wanted.size(); ++v) output[n + 1].add(to_float(to_bfloat16(seen[v])), wanted[v]);
      kRoundings[n](dense[n].state());
    }
    if ((t + 1) % request.interval != 0) continue;
    const float* const pool_state = pool.states[static_cast<size_t>(t / request.interval)].data() + head * kElements;
    for (size_t n = 0; n < kStates; ++n) {
      Distance distance;
      const float* const seen = n == 0 ? pool_state : dense[n - 1].state().data();
      for (int64_t i = 0; i < kElements; ++i) distance.add(seen[i], exact.state()[static_cast<size_t>(i)]);
      errors.state[n].push_back(distance.relative());
      errors.output[n].push_back(output[n].relative());
      output[n] = {};
    }
  }
  return errors;
}

void add_scaled(const std::vector<double>& from, double scale, std::vector<double>& to) {
  to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] += scale * from[i];
}

// The profiles with the means of their heads.
std::vector<DriftProfile> summarize(Gate gate, const Heads& heads, const std::vector<HeadErrors>& errors) {
  const std::array<int64_t, kStates> bytes = bytes_per_head(drift_geometry(gate, 1));
  std::vector<DriftProfile> profiles;
  for (int64_t p = 0; p < heads.profiles(); ++p) {
    DriftProfile profile = heads.profile(p);
    for (size_t n = 0; n < kStates; ++n) {
      DriftSeries series{kStateNames[n], bytes[n], {}, {}};
      for (int64_t h = 0; h < kProfileHeads; ++h) {
        const HeadErrors& of_head = errors[static_cast<size_t>(p * kProfileHeads + h)];
        add_scaled(of_head.state[n], 1.0 / kProfileHeads, series.state_error);
        add_scaled(of_head.output[n], 1.0 / kProfileHeads, series.output_error);
      }
      profile.series.push_back(std::move(series));
    }
    profiles.push_back(std::move(profile));
  }
  return profiles;
}

Status check(const DriftRequest& request) {
  if (request.interval >= 1 && request.tokens >= request.interval) return {};
  return invalid_argument("drift: expected at least one interval of tokens, got " + std::to_string(request.tokens) +
                          " tokens in intervals of " + std::to_string(request.interval));
}

Result<std::optional<Trajectory>> recorded(Gate gate) {
  if (gate != Gate::kKda) return std::optional<Trajectory>();
  Result<Trajectory> trajectory = read_trajectory("");
  if (!trajectory.ok()) return trajectory.status();
  const Trajectory& t = trajectory.value();
  const bool fits = t.dim == kDriftDim && std::ssize(t.layers) * t.heads == kProfileHeads;
  if (!fits) return invalid_argument("drift: expected a trajectory of four heads of 128 x 128");
  return std::optional<Trajectory>(std::move(trajectory.value()));
}

}  // namespace

Result<DriftReport> measure_drift(const Context& context, const DriftRequest& request,
                                  const std::function<void(double)>& progress) {
  LQ_RETURN_IF_ERROR(check(request));
  Result<std::optional<Trajectory>> trajectory = recorded(request.gate);
  if (!trajectory.ok()) return trajectory.status();
  const Heads heads(std::move(trajectory.value()));
  const PoolRun pool = run_pool(context, request, heads, progress);
  std::vector<HeadErrors> errors(static_cast<size_t>(heads.count()));
  parallel_for(heads.count(), request.threads,
               [&](int64_t head) { errors[static_cast<size_t>(head)] = head_errors(request, heads, pool, head); });
  DriftReport report;
  for (int64_t t = request.interval; t <= request.tokens; t += request.interval) report.positions.push_back(t);
  report.profiles = summarize(request.gate, heads, errors);
  progress(1);
  return report;
}

}  // namespace leapquant::judge
