// SPDX-License-Identifier: Apache-2.0
//
// The step of one program on one core, for any instruction set. T1 to T5 as in docs/format.md.
//
// The state is never formed. Its products with kn and qn come apart into dot products over k and a sum over them:
//
//   S x = s_v ∘ (codes (s_k / 127 ∘ exp(pcum') ∘ x))  +  sum_r q_r (u_r · (exp(pcum') ∘ x))
//         +  sum_j w_j ubuf_j ((kbuf_j ∘ D_j) · x)
//
// for KDA. With the scalar decay of GDN, p' in place of exp(pcum') and w_j at in place of w_j D_j multiply the dot
// products: nothing is lost to a p' or a weight near the end of the range.
//
// One pass over the 16 KiB of codes serves both: 4 V K operations. Of the window only live entries are read.
//
// Sums run in a fixed order: over factors and entries one after another, over k by sixteen lanes and a tree.
//
// Included once per instruction set by foreach_target.
#if defined(LQ_CPU_STEP_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LQ_CPU_STEP_KERNEL_INL_H_
#undef LQ_CPU_STEP_KERNEL_INL_H_
#else
#define LQ_CPU_STEP_KERNEL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "core/log_gate.h"
#include "core/numerics.h"
#include "cpu/lanes16-inl.h"
#include "cpu/math16-inl.h"
#include "cpu/step_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace leapquant::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct StepConfig {
  // Rows of codes at a time: with two sums each they fill half of the registers of most instruction sets.
  static constexpr size_t kRows = HWY_MAX(4 / kParts, 1);
  // Lines of the next program to fetch at each turn of a loop. Memory serves only so many at a time, and a core that
  // asks for more has to wait: they are spread over the whole step.
  static constexpr size_t kLinesPerGates = 16;  // sixteen channels
  static constexpr size_t kLinesPerFactor = 16;
  static constexpr size_t kLinesPerEntry = 8;
  static constexpr size_t kLinesPerRows = 2 * kRows;
  static constexpr size_t kLinesPerResults = 8;  // sixteen values
  // What is asked for is enough for a program with as many entries and one more: for every factor, and for codes,
  // scales, weights, log-decay and the rows of the window.
  static constexpr size_t kFactorLines = 2 * (kKeyDim + kValueDim) / PrefetchQueue::kLine;
  static constexpr size_t kEntryLines = 2 * (2 * kKeyDim + kValueDim) / PrefetchQueue::kLine;
  static constexpr size_t kOtherLines =
      (kValueDim * kKeyDim + 4 * (2 * kKeyDim + kValueDim + kWindow)) / PrefetchQueue::kLine;
  static constexpr size_t kScalarEntryLines = 2 * (kKeyDim + kValueDim) / PrefetchQueue::kLine;  // GDN
  static_assert(kLinesPerFactor >= kFactorLines);
  static_assert(kKeyDim / 16 * kLinesPerGates + (kWindow - 1) * kLinesPerEntry + kValueDim / kRows * kLinesPerRows +
                    kValueDim / 16 * kLinesPerResults >=
                kOtherLines + kWindow * kEntryLines);
  static_assert((kWindow - 1) * kLinesPerEntry + kValueDim / kRows * kLinesPerRows +
                    kValueDim / 16 * kLinesPerResults >=
                kOtherLines + kWindow * kScalarEntryLines);

  static_assert(kValueDim % kRows == 0);
};

// ---- T1 and T2: the sides of the products --------------------------------------------------------------------------

// out = scale x, its sum of squares, and its largest magnitude.
struct Loudness {
  float square;
  float largest;
};
HWY_INLINE Loudness load_scaled(const Bfloat16* x, float scale, float* out) {
  Lanes16 square = set16(0.0f);
  Lanes16 largest = set16(0.0f);
  for (size_t k = 0; k < kKeyDim; k += 16) {
    const Lanes16 value = mul16(load16(x + k), set16(scale));
    square = mul_add16(value, value, square);
    largest = max16(largest, abs16(value));
    store16(value, out + k);
  }
  return {sum16(square), largest16(largest)};
}

// out = length · x / |x|
HWY_INLINE void normalize(const Bfloat16* x, float length, float* out) {
  Loudness loudness = load_scaled(x, 1.0f, out);
  float floor = kNormFloor;
  if (loudness.largest > kLoudInput) {
    loudness = load_scaled(x, kLoudScale, out);
    floor = 0.0f;
  }
  const Lanes16 factor = set16(length / std::sqrt(loudness.square + floor));
  for (size_t k = 0; k < kKeyDim; k += 16) store16(mul16(load16(out + k), factor), out + k);
}

HWY_INLINE Lanes16 log_gate(const GateRule& rule, const TokenProgram& token, float rate, size_t k) {
  if (rule.function == GateFunction::kGiven) return load16(token.log_gate + k);
  const Lanes16 input = add16(load16(token.gate_input + k), load16(token.gate_bias + k));
  if (rule.function == GateFunction::kBounded) {
    return mul16(set16(rule.lower_bound), sigmoid16(mul16(set16(rate), input)));
  }
  return mul16(set16(-rate), softplus16(input));
}

// What the gates leave of checkpoint and entries, beside the decays of single channels in the workspace.
struct Decays {
  float checkpoint;  // p'; 1 for KDA
  float token;       // at; 1 for KDA
  float trouble;     // 0 where pcum' is finite: 0 · x is NaN for any other x. A p' that is not spoils all products
};

// en into entry_decay, exp(pcum') into the sides; writes the gate's and the log-decay's row.
HWY_INLINE Decays apply_channel_gates(const StepProgram& p, StepWorkspace& workspace) {
  const bool given = p.gate.function == GateFunction::kGiven;
  const float rate = given ? 0.0f : static_cast<float>(std::exp(static_cast<double>(*p.token.log_rate)));
  Lanes16 trouble = set16(0.0f);
  for (size_t k = 0; k < kKeyDim; k += 16) {
    workspace.upcoming.fetch(StepConfig::kLinesPerGates);
    const Lanes16 gate = log_gate(p.gate, p.token, rate, k);
    const Lanes16 decay = exp16(gate);
    store16(decay, workspace.entry_decay + k);
    store16(decay, p.rows.gate + k);
    const Lanes16 log_decay = add16(load16(p.log_decay + k), gate);
    store16(log_decay, p.rows.log_decay + k);
    if (p.rows.log_gate != nullptr) store16(gate, p.rows.log_gate + k);
    trouble = mul_add16(log_decay, set16(0.0f), trouble);
    const Lanes16 checkpoint_decay = exp16(log_decay);
    for (size_t s = 0; s < kSides; ++s) {
      store16(mul16(load16(workspace.side[s] + k), checkpoint_decay), workspace.decayed_side[s] + k);
    }
  }
  return {1.0f, 1.0f, sum16(trouble)};
}

// In double: it is one number, and all weights inherit its error.
HWY_INLINE Decays apply_scalar_gate(const StepProgram& p, StepWorkspace& workspace) {
  for (size_t s = 0; s < kSides; ++s) std::copy_n(workspace.side[s], kKeyDim, workspace.decayed_side[s]);
  const auto token_decay = static_cast<float>(std::exp(log_gate_of<double>(p.gate, p.token, 0)));
  return {*p.decay * token_decay, token_decay, 0.0f};
}

template <Gate kGate>
HWY_INLINE Decays apply_gates(const StepProgram& p, StepWorkspace& workspace) {
  return kGate == Gate::kKda ? apply_channel_gates(p, workspace) : apply_scalar_gate(p, workspace);
}

// ---- T3: dot products over k ---------------------------------------------------------------------------------------

inline constexpr size_t kMostEntries = kWindow + static_cast<size_t>(kMaxDraftTokens);

// Both sides' dot products with one row.
struct Dots {
  float of[kSides];
};

// Rows of the rank-R part, then live entries: a value row with its dot products.
struct Terms {
  Dots factor[kMaxRank];
  Dots entry[kMostEntries];
  const Bfloat16* live[kMostEntries];  // update rows [V] of the entries whose weight is not 0
  size_t live_count = 0;
};

HWY_INLINE void add_factors(const StepProgram& p, const Decays& decays, StepWorkspace& workspace, Terms& terms) {
  for (size_t r = 0; r < p.rank; ++r) {
    workspace.upcoming.fetch(StepConfig::kLinesPerFactor);
    const Half* const row = p.checkpoint.key_factor + static_cast<int64_t>(r) * p.checkpoint.key_factor_row;
    Lanes16 sum[kSides] = {set16(0.0f), set16(0.0f)};
    for (size_t k = 0; k < kKeyDim; k += 16) {
      const Lanes16 factor = load16(row + k);
      for (size_t s = 0; s < kSides; ++s) {
        sum[s] = mul_add16(factor, load16(workspace.decayed_side[s] + k), sum[s]);
      }
    }
    for (size_t s = 0; s < kSides; ++s) terms.factor[r].of[s] = decays.checkpoint * sum16(sum[s]);
  }
}

template <Gate kGate>
HWY_INLINE void add_entry(const EntryRun& run, size_t j, float weight, const StepWorkspace& workspace, Terms& terms) {
  Lanes16 sum[kSides] = {set16(0.0f), set16(0.0f)};
  for (size_t k = 0; k < kKeyDim; k += 16) {
    Lanes16 key = load16(run.key + j * kKeyDim + k);
    if constexpr (kGate == Gate::kKda) key = mul16(key, load16(workspace.entry_decay + k));
    for (size_t s = 0; s < kSides; ++s) sum[s] = mul_add16(key, load16(workspace.side[s] + k), sum[s]);
  }
  for (size_t s = 0; s < kSides; ++s) terms.entry[terms.live_count].of[s] = weight * sum16(sum[s]);
  terms.live[terms.live_count++] = run.update + j * kValueDim;
}

// From the newest entry to the oldest; with KDA the decay of each is a product of the gates after it.
template <Gate kGate>
HWY_INLINE void add_entries(const EntryRun& run, const Decays& decays, StepWorkspace& workspace, Terms& terms) {
  for (size_t j = run.count; j-- > 0;) {
    workspace.upcoming.fetch(StepConfig::kLinesPerEntry);
    const float weight = run.weight[j] * decays.token;
    if (weight != 0.0f) add_entry<kGate>(run, j, weight, workspace, terms);
    if constexpr (kGate == Gate::kKda) {
      for (size_t k = 0; k < kKeyDim; k += 16) {
        const Lanes16 gate = load16(run.gate + j * kKeyDim + k);
        store16(mul16(load16(workspace.entry_decay + k), gate), workspace.entry_decay + k);
      }
    }
  }
}

// product = codes (s_k / 127 ∘ decayed_side), both sides in one pass.
HWY_INLINE void multiply_codes(const StepProgram& p, StepWorkspace& workspace) {
  constexpr size_t kRows = StepConfig::kRows;
  for (size_t k = 0; k < kKeyDim; k += 16) {
    const Lanes16 scale = map16([](Vector x) HWY_ATTR { return hn::Div(x, hn::Set(F32(), kCodeMax)); },
                                load16(p.checkpoint.key_scale + k));
    for (float(&side)[kKeyDim] : workspace.decayed_side) store16(mul16(load16(side + k), scale), side + k);
  }
  for (size_t v = 0; v < kValueDim; v += kRows) {
    workspace.upcoming.fetch(StepConfig::kLinesPerRows);
    Lanes16 sum[kRows][kSides];
    for (size_t row = 0; row < kRows; ++row) sum[row][0] = sum[row][1] = set16(0.0f);
    for (size_t k = 0; k < kKeyDim; k += 16) {
      const Lanes16 key = load16(workspace.decayed_side[0] + k);
      const Lanes16 query = load16(workspace.decayed_side[1] + k);
      for (size_t row = 0; row < kRows; ++row) {
        const Lanes16 code = load16(p.checkpoint.codes + (v + row) * kKeyDim + k);
        sum[row][0] = mul_add16(code, key, sum[row][0]);
        sum[row][1] = mul_add16(code, query, sum[row][1]);
      }
    }
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t s = 0; s < kSides; ++s) {
        store_quarter_sums(sum[row][s], workspace.partial + 4 * (s * kValueDim + v + row));
      }
    }
  }
  sum_quarters(workspace.partial, kSides * kValueDim, workspace.product);
}

// ---- T4 and T5 -----------------------------------------------------------------------------------------------------

HWY_INLINE void add_term(const Lanes16& value, const Dots& dots, Lanes16 (&sum)[kSides]) {
  for (size_t s = 0; s < kSides; ++s) sum[s] = mul_add16(value, set16(dots.of[s]), sum[s]);
}

HWY_INLINE float key_dot_query(const StepWorkspace& workspace) {
  Lanes16 sum = set16(0.0f);
  for (size_t k = 0; k < kKeyDim; k += 16) {
    sum = mul_add16(load16(workspace.side[0] + k), load16(workspace.side[1] + k), sum);
  }
  return sum16(sum);
}

// Update and output rows. Returns lanes that are 0 where both are finite.
HWY_INLINE Lanes16 write_results(const StepProgram& p, const Decays& decays, StepWorkspace& workspace,
                                 const Terms& terms) {
  const Lanes16 beta = set16(to_float(beta_of(*p.token.beta_input)));
  const Lanes16 key_query = set16(key_dot_query(workspace));
  Lanes16 trouble = set16(0.0f);
  for (size_t v = 0; v < kValueDim; v += 16) {
    workspace.upcoming.fetch(StepConfig::kLinesPerResults);
    const Lanes16 row_scale = load16(p.checkpoint.value_scale + v);
    Lanes16 sum[kSides];
    for (size_t s = 0; s < kSides; ++s) {
      const Lanes16 product = mul16(load16(workspace.product + s * kValueDim + v), set16(decays.checkpoint));
      sum[s] = mul16(product, row_scale);
    }
    for (size_t r = 0; r < p.rank; ++r) {
      const int64_t row = static_cast<int64_t>(r) * p.checkpoint.value_factor_row;
      add_term(load16(p.checkpoint.value_factor + row + v), terms.factor[r], sum);
    }
    for (size_t n = 0; n < terms.live_count; ++n) {
      add_term(load16(terms.live[n] + v), terms.entry[n], sum);
    }
    const Lanes16 update = mul16(beta, sub16(load16(p.token.value + v), sum[0]));
    const Lanes16 output = mul_add16(key_query, update, sum[1]);
    store16(update, p.rows.update + v);
    store16(output, p.rows.output + v);
    trouble = mul_add16(update, set16(0.0f), mul_add16(output, set16(0.0f), trouble));
  }
  return trouble;
}

template <Gate kGate>
StepOutcome step_program(const StepProgram& p, StepWorkspace& workspace) {
  normalize(p.token.key, 1.0f, workspace.side[0]);
  normalize(p.token.query, 1.0f / std::sqrt(static_cast<float>(kKeyDim)), workspace.side[1]);
  for (size_t k = 0; k < kKeyDim; k += 16) store16(load16(workspace.side[0] + k), p.rows.key + k);
  const Decays decays = apply_gates<kGate>(p, workspace);
  Terms terms;
  add_factors(p, decays, workspace, terms);
  add_entries<kGate>(p.drafted, decays, workspace, terms);
  add_entries<kGate>(p.window, decays, workspace, terms);
  multiply_codes(p, workspace);
  const float trouble = decays.trouble + sum16(write_results(p, decays, workspace, terms));
  return {trouble == 0.0f, decays.token};
}

inline StepKernel step_kernel(Gate gate) {
  return gate == Gate::kKda ? &step_program<Gate::kKda> : &step_program<Gate::kGdn>;
}

}  // namespace leapquant::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // LQ_CPU_STEP_KERNEL_INL_H_
