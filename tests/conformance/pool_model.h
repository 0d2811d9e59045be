// SPDX-License-Identifier: Apache-2.0
//
// A pool as its documentation tells it, on the scalar reference: one struct a program, nothing in common with the
// library's pool, plans or selections. Where a backend computes with other roundings, its results are taken over once
// they have been compared, so that differences do not add up.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/draft_layout.h"
#include "core/geometry.h"
#include "core/program_view.h"
#include "judge/step_tensors.h"
#include "leapquant/leapquant.h"

namespace leapquant::conformance {

// What an operation did to a program.
enum class Touch { kNothing, kAppended, kQuantized, kReplaced };

struct ModelProgram {
  explicit ModelProgram(const Geometry& geometry);  // of a new pool
  CheckpointProgram checkpoint();
  WindowProgram window();

  Geometry geometry;
  std::vector<int8_t> codes;
  std::vector<float> key_scale, value_scale;
  std::vector<Half> key_factor, value_factor;
  std::vector<Bfloat16> window_key, window_update;
  std::vector<float> window_weight;
  std::vector<Half> window_gate;  // KDA
  std::vector<float> log_decay;   // KDA
  float decay = 1;                // GDN
  int32_t count = 0;

  Touch touch = Touch::kNothing;
  std::vector<double> quantized;  // the state that the last flush or import stored, in double
};

// One program's drafted tokens.
struct ModelDraft {
  bool made = false;
  int32_t entries = 0;
  std::vector<Bfloat16> key, update;  // [T, K], [T, V]
  std::vector<Half> gate;             // [T, K] KDA
  std::vector<float> log_gate;        // [T, K] KDA
  std::vector<float> token_decay;     // [T] GDN
};

class PoolModel {
 public:
  PoolModel(const Geometry& geometry, int64_t slots, std::vector<float> start_basis);

  ModelProgram& at(int64_t slot, int64_t head) { return programs_[slot * geometry_.num_heads + head]; }
  int64_t slots() const { return slots_; }
  const std::vector<float>& start_basis() const { return start_basis_; }
  uint32_t errors = 0;  // flags of lq_pool_errors

  // Forgets what the last operation touched.
  void begin();

  // One token; row `row` of `tokens`. `output` [H, V].
  void step(int64_t slot, const judge::StepInputs& tokens, int64_t row, Bfloat16* output);
  void flush(int64_t slot);
  void flush_now(int64_t slot);
  void reset(int64_t slot);
  void copy(int64_t source, int64_t target);
  // `states` [H, V, K], `offsets` [H].
  void import_state(int64_t slot, std::span<const float> states, std::span<const int32_t> offsets);
  void export_state(int64_t slot, float* states);
  // `count` tokens from row `row` on. `output` [T, H, V]. One draft a head. Each token attends to the earlier ones as
  // `seen` [H] holds them, or, where it is empty, as the model has made them.
  std::vector<ModelDraft> draft(int64_t slot, const judge::StepInputs& tokens, int64_t row, int32_t count,
                                std::span<const DraftProgram> seen, Bfloat16* output);
  void commit(int64_t slot, const std::vector<ModelDraft>& drafts, int32_t accepted);

 private:
  // Whether the slot is one; an index beyond the pool is recorded.
  bool is_slot(int64_t slot);
  // The occupied entries of a program that may step, or -1; what is wrong has then been recorded.
  int32_t occupied(ModelProgram& program);
  // The entry of a token: its weight, what became of the others, and the counter.
  void count_entry(ModelProgram& program, int32_t entry, float token_decay);
  void quantize(ModelProgram& program, std::span<const float> state, std::vector<double> exact);
  void flush_program(ModelProgram& program);

  Geometry geometry_;
  int64_t slots_;
  std::vector<float> start_basis_;
  std::vector<ModelProgram> programs_;
};

}  // namespace leapquant::conformance
