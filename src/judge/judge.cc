// SPDX-License-Identifier: Apache-2.0
#include "judge/judge.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "judge/parallel.h"
#include "ref/flush.h"

namespace leapquant::judge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool all_finite(const Half* row, int64_t count) {
  return std::all_of(row, row + count, [](Half value) { return std::isfinite(to_float(value)); });
}

bool valid_scales(const float* scales, int64_t count) {
  return std::all_of(scales, scales + count, [](float scale) { return std::isfinite(scale) && scale > 0; });
}

// 1. Finite everywhere, scales positive, codes in [-127, 127].
bool well_formed(const Geometry& geometry, const CheckpointProgram& program) {
  for (int64_t r = 0; r < geometry.rank; ++r) {
    if (!all_finite(program.key_factor + r * program.key_factor_row, geometry.key_dim)) return false;
    if (!all_finite(program.value_factor + r * program.value_factor_row, geometry.value_dim)) return false;
  }
  return valid_scales(program.key_scale, geometry.key_dim) && valid_scales(program.value_scale, geometry.value_dim) &&
         std::find(program.codes, program.codes + geometry.state_elements(), int8_t{-128}) ==
             program.codes + geometry.state_elements();
}

double mean_abs(std::span<const double> state) {
  double sum = 0;
  for (const double value : state) sum += std::fabs(value);
  return sum / static_cast<double>(state.size());
}

// mean |decode(result) - S|, infinite where it is no number: no comparison with a bound then holds by accident.
double decoded_error(const Geometry& geometry, std::span<const double> state, const CheckpointProgram& result) {
  if (!well_formed(geometry, result)) return kInfinity;
  const std::vector<double> decoded = ref::decode(geometry, result);
  double sum = 0;
  for (size_t i = 0; i < state.size(); ++i) sum += std::fabs(decoded[i] - state[i]);
  return std::isfinite(sum) ? sum / static_cast<double>(state.size()) : kInfinity;
}

// Largest value, and where it was first seen.
struct Worst {
  double value = -1;
  int64_t index = -1;

  void see(double candidate, int64_t where) {
    if (candidate > value) *this = {candidate, where};
  }
};

// err as a fraction of its bound. A head of zeros has a bound of zero, which only an exact result keeps.
double used_bound(const Score& score) {
  if (score.bound() > 0) return score.error / score.bound();
  return score.error == 0 ? 0 : kInfinity;
}

// One score per head: the averages over the batch.
std::vector<Score> average_heads(std::span<const Score> scores, int64_t num_heads) {
  const double batch = static_cast<double>(scores.size()) / static_cast<double>(num_heads);
  std::vector<Score> heads(static_cast<size_t>(num_heads), Score{.well_formed = true});
  for (size_t n = 0; n < scores.size(); ++n) {
    Score& head = heads[n % static_cast<size_t>(num_heads)];
    head.well_formed = head.well_formed && scores[n].well_formed;
    head.mean_abs += scores[n].mean_abs / batch;
    head.error += scores[n].error / batch;
    head.reference_error += scores[n].reference_error / batch;
  }
  return heads;
}

}  // namespace

Score score_program(const Geometry& geometry, const CheckpointProgram& checkpoint, const WindowProgram& window,
                    const float* start_basis, const CheckpointProgram& result) {
  const std::vector<double> state = ref::rebuild_state<double>(geometry, checkpoint, window);
  Geometry one_head = geometry;
  one_head.num_heads = 1;
  const CheckpointTensors reference(one_head, 1);
  const CheckpointProgram reference_program = reference.view().at(0, 0);

  ref::flush_program<float>(geometry, checkpoint, window, start_basis, reference_program);
  const double float_error = decoded_error(geometry, state, reference_program);
  ref::quantize_residual<double>(geometry, state, ref::compress_state<double>(geometry, state, start_basis),
                                 reference_program);
  const double double_error = decoded_error(geometry, state, reference_program);

  return {.well_formed = well_formed(geometry, result),
          .mean_abs = mean_abs(state),
          .error = decoded_error(geometry, state, result),
          .reference_error = std::min(float_error, double_error)};
}

Judgement summarize(std::span<const Score> scores, int64_t num_heads) {
  Judgement judgement{.programs = static_cast<int64_t>(scores.size())};
  Worst worst;
  for (size_t n = 0; n < scores.size(); ++n) {
    const Score& score = scores[n];
    judgement.finite = judgement.finite && score.well_formed;
    judgement.over += score.passes() ? 0 : 1;
    worst.see(used_bound(score), static_cast<int64_t>(n));
    double& figure = score.relative() ? judgement.worst_ratio : judgement.worst_absolute;
    figure = std::max(figure, score.relative() ? score.error / score.reference_error : used_bound(score));
  }
  judgement.worst_program = worst.index;
  for (const Score& head : average_heads(scores, num_heads)) {
    judgement.averaged_over += head.passes() ? 0 : 1;
    if (head.relative())
      judgement.averaged_ratio = std::max(judgement.averaged_ratio, head.error / head.reference_error);
  }
  return judgement;
}

void include(Judgement& all, const Judgement& run) {
  if (all.worst_program < 0 || run.worst_use() > all.worst_use()) {
    all.worst_program = run.worst_program;
    all.worst_seed = run.worst_seed;
  }
  all.programs += run.programs;
  all.over += run.over;
  all.finite = all.finite && run.finite;
  all.worst_ratio = std::max(all.worst_ratio, run.worst_ratio);
  all.worst_absolute = std::max(all.worst_absolute, run.worst_absolute);
  all.averaged_ratio = std::max(all.averaged_ratio, run.averaged_ratio);
  all.averaged_over += run.averaged_over;
}

std::vector<Score> score_flush(const FlushInputs& inputs, const CheckpointView& result, int threads) {
  const int64_t heads = inputs.geometry.num_heads;
  const CheckpointView checkpoint = inputs.checkpoint.view();
  const WindowView window = inputs.window.view();
  std::vector<Score> scores(static_cast<size_t>(inputs.programs()));
  parallel_for(inputs.programs(), threads, [&](int64_t n) {
    const int64_t item = n / heads;
    const int64_t head = n % heads;
    scores[static_cast<size_t>(n)] = score_program(inputs.geometry, checkpoint.at(item, head), window.at(item, head),
                                                   inputs.q0.data(), result.at(item, head));
  });
  return scores;
}

Judgement judge_flush(const FlushInputs& inputs, const CheckpointView& result, int threads) {
  return summarize(score_flush(inputs, result, threads), inputs.geometry.num_heads);
}

}  // namespace leapquant::judge
