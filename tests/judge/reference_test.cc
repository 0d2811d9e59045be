// SPDX-License-Identifier: Apache-2.0
//
// The float reference under the numerical policies: the judge measures every backend against it, so it has to keep them
// by a measure of its own.
#include <bit>
#include <cmath>
#include <numeric>

#include "fixture.h"
#include "judge/policy.h"
#include "judge/random.h"

namespace leapquant::judge {
namespace {

constexpr int64_t kDim = 128;

double mean_abs_difference(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::fabs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

double mean_abs_of(std::span<const double> a) { return mean_abs_difference(a, std::vector<double>(a.size())); }

TEST(Reference, ConstantHeadsAreKeptFromAnyOrthonormalStart) {
  for (const double constant : {1e-3, 1.0, 70.0, 5000.0, 6000.0, 9000.0}) {
    for (uint64_t seed = 0; seed < 100; ++seed) {
      const Geometry geometry = geometry_of(1);
      const std::vector<float> start_basis = orthonormal_start_basis(geometry, seed);
      const std::vector<float> state(static_cast<size_t>(kDim * kDim), static_cast<float>(constant));
      const CheckpointTensors result(geometry, 1);
      const CheckpointProgram program = result.view().at(0, 0);
      ref::quantize_residual<float>(geometry, state, ref::compress_state<float>(geometry, state, start_basis.data()),
                                    program);
      const std::vector<double> decoded = ref::decode(geometry, program);
      const double error = mean_abs_difference(decoded, std::vector<double>(state.begin(), state.end()));
      ASSERT_LE(error, 1e-3 * constant) << "constant " << constant << ", seed " << seed;
    }
  }
}

TEST(Reference, PolicyHeadsKeepTheirBoundFromManyStarts) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const FlushInputs inputs = draw(Family::kPolicy, 1, static_cast<int32_t>(policy_case_count()), 4, seed);
    const std::vector<Score> scores = score_flush(inputs, reference_flush<float>(inputs).view(), 2);
    for (int64_t n = 0; n < policy_case_count(); ++n) {
      EXPECT_TRUE(scores[n].passes()) << policy_case_name(n) << ", seed " << seed << ": error " << scores[n].error
                                      << ", bound " << scores[n].bound();
    }
  }
}

TEST(Reference, AHeadOfZerosGivesTheScaleFloor) {
  const FlushInputs inputs = draw(Family::kStructured, 1, 12);
  const CheckpointTensors result = reference_flush<float>(inputs);
  for (int64_t i = 2 * kDim; i < 3 * kDim; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(result.s_k[i]), 0x2B8CBCCCu);
    EXPECT_EQ(std::bit_cast<uint32_t>(result.s_v[i]), 0x2B8CBCCCu);
  }
  for (int64_t i = 2 * 4 * kDim; i < 3 * 4 * kDim; ++i) EXPECT_TRUE(result.u[i].bits == 0 && result.q[i].bits == 0);
  for (int64_t i = 2 * kDim * kDim; i < 3 * kDim * kDim; ++i) EXPECT_EQ(result.codes[i], 0);
}

TEST(Reference, SaturatesFactorsBeyondHalf) {
  const std::vector<float> state(static_cast<size_t>(kDim * kDim), 6000.0f);
  const Geometry geometry = geometry_of(1);
  const ref::Factors factors = ref::compress_state<float>(geometry, state, orthonormal_start_basis(geometry, 1).data());
  EXPECT_EQ(std::fabs(to_float(factors.key_factor[0])), kHalfMax);
}

TEST(Reference, ARankDeficientStartGivesZeroFactorsInTheMissingDirections) {
  const FlushInputs inputs = draw(Family::kRandom, 1, 1);
  std::vector<float> start_basis = inputs.q0;
  for (int64_t v = 0; v < kDim; ++v) {
    start_basis[v * 4 + 1] = 0;
    start_basis[v * 4 + 3] = 3 * start_basis[v * 4];
  }
  const std::vector<double> state = rebuilt(inputs, 0, 0);
  const std::vector<float> rounded(state.begin(), state.end());
  const ref::Factors factors = ref::compress_state<float>(inputs.geometry, rounded, start_basis.data());
  for (const int64_t r : {1, 3}) {
    for (int64_t i = r * kDim; i < (r + 1) * kDim; ++i) {
      ASSERT_TRUE(factors.key_factor[i].bits == 0 && factors.value_factor[i].bits == 0) << "factor " << r;
    }
  }
}

// Steps 2 and 3 as published, in double: Gram-Schmidt applied twice, norms clamped at 1e-30, nothing ever dropped. With
// saturation, which the published formula lacks.
void published_orthonormalize(std::vector<double>& thin, int64_t rank) {
  for (int64_t r = 0; r < rank; ++r) {
    double* const column = thin.data() + r * kDim;
    const auto dot = [&](const double* other) { return std::inner_product(other, other + kDim, column, 0.0); };
    for (int64_t projection = 0; projection < 2 * r; ++projection) {
      const double* const earlier = thin.data() + projection % r * kDim;
      const double length = dot(earlier);
      for (int64_t i = 0; i < kDim; ++i) column[i] -= length * earlier[i];
    }
    const double norm = std::max(std::sqrt(dot(column)), 1e-30);
    for (int64_t i = 0; i < kDim; ++i) column[i] /= norm;
  }
}

double published_error(const Geometry& geometry, const std::vector<double>& state, const std::vector<float>& q0) {
  const int64_t rank = geometry.rank;
  std::vector<double> p(static_cast<size_t>(rank * kDim));
  std::vector<double> q(p.size());
  std::vector<double> u(p.size());
  const auto each = [&](auto&& body) {
    for (int64_t r = 0; r < rank; ++r) {
      for (int64_t v = 0; v < kDim; ++v) {
        for (int64_t k = 0; k < kDim; ++k) body(r, v, k, state[v * kDim + k]);
      }
    }
  };
  each([&](int64_t r, int64_t v, int64_t k, double s) { p[r * kDim + k] += s * q0[v * rank + r]; });
  published_orthonormalize(p, rank);
  each([&](int64_t r, int64_t v, int64_t k, double s) { q[r * kDim + v] += s * p[r * kDim + k]; });
  published_orthonormalize(q, rank);
  each([&](int64_t r, int64_t v, int64_t k, double s) { u[r * kDim + k] += s * q[r * kDim + v]; });
  ref::Factors factors;
  for (const double value : u) factors.key_factor.push_back(saturate_to_half(value));
  for (const double value : q) factors.value_factor.push_back(saturate_to_half(value));
  const CheckpointTensors result(geometry, 1);
  ref::quantize_residual<double>(geometry, state, factors, result.view().at(0, 0));
  return mean_abs_difference(ref::decode(geometry, result.view().at(0, 0)), state);
}

template <class Real>
double reference_error(const Geometry& geometry, const std::vector<double>& state, const std::vector<float>& q0) {
  const std::vector<Real> rounded(state.begin(), state.end());
  const CheckpointTensors result(geometry, 1);
  ref::quantize_residual<Real>(geometry, rounded, ref::compress_state<Real>(geometry, rounded, q0.data()),
                               result.view().at(0, 0));
  return mean_abs_difference(ref::decode(geometry, result.view().at(0, 0)), state);
}

void add_outer_product(RandomStream& stream, double size, std::vector<double>& state) {
  std::vector<double> key(kDim);
  for (double& value : key) value = stream.normal();
  for (int64_t v = 0; v < kDim; ++v) {
    const double update = size * stream.normal();
    for (int64_t k = 0; k < kDim; ++k) state[v * kDim + k] += update * key[k];
  }
}

// Heads whose singular values fall off or end, the smaller part `size` times the larger.
std::vector<double> graded_head(int shape, double size, RandomStream& stream) {
  std::vector<double> state(static_cast<size_t>(kDim * kDim));
  if (shape == 0) {  // eight outer products, each `size` times the one before it
    double product_size = 1;
    for (int term = 0; term < 8; ++term, product_size *= size) add_outer_product(stream, product_size, state);
  } else {
    if (shape == 1) state[37 * kDim + 11] = 1;  // one loud element above noise
    if (shape == 2) add_outer_product(stream, 1, state);
    for (double& value : state) value += size * stream.normal();
  }
  for (double& value : state) value = static_cast<float>(value);  // so that float and double see the same head
  return state;
}

// A dependent column is dropped, where the published formula would turn rounding noise into a factor. That must not
// cost accuracy on any head, however gently its singular values fall off: wherever the relative bound holds, what is
// dropped is far smaller than the error of the codes.
TEST(Reference, DroppingDependentColumnsCostsNothing) {
  for (const int32_t rank : {2, 4, 8}) {
    const Geometry geometry = geometry_of(1, rank);
    const std::vector<float> q0 = normal_start_basis(geometry);
    for (int shape = 0; shape < 3; ++shape) {
      for (int decade = 0; decade <= 9; ++decade) {
        RandomStream stream({static_cast<uint64_t>(shape), static_cast<uint64_t>(decade)});
        const std::vector<double> state = graded_head(shape, std::pow(10.0, -decade), stream);
        const Score measure = {.well_formed = true,
                               .mean_abs = mean_abs_of(state),
                               .error = std::max(reference_error<float>(geometry, state, q0),
                                                 reference_error<double>(geometry, state, q0)),
                               .reference_error = published_error(geometry, state, q0)};
        EXPECT_TRUE(measure.passes()) << "rank " << rank << ", shape " << shape << ", 1e-" << decade << ": "
                                      << measure.error << " against " << measure.reference_error;
        EXPECT_LE(measure.error, 1.1 * measure.reference_error);
      }
    }
  }
}

}  // namespace
}  // namespace leapquant::judge
