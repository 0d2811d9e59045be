// SPDX-License-Identifier: Apache-2.0
#include "pool_model.h"

#include <algorithm>
#include <utility>

#include "ref/flush.h"
#include "ref/grown_window.h"
#include "ref/step.h"

namespace leapquant::conformance {
namespace {

constexpr Half kOne{kHalfOne};

void empty_window(ModelProgram& program) {
  std::fill(program.window_weight.begin(), program.window_weight.end(), 0.0f);
  std::fill(program.window_gate.begin(), program.window_gate.end(), kOne);
  std::fill(program.log_decay.begin(), program.log_decay.end(), 0.0f);
  program.decay = 1;
}

// Values of a tensor that KDA alone has.
size_t kda_values(const Geometry& g, int64_t count) { return g.gate == Gate::kKda ? static_cast<size_t>(count) : 0; }

template <class T>
T* row_of(std::vector<T>& values, int64_t offset) {
  return values.empty() ? nullptr : values.data() + offset;
}

}  // namespace

ModelProgram::ModelProgram(const Geometry& g)
    : geometry(g),
      codes(static_cast<size_t>(g.state_elements())),
      key_scale(static_cast<size_t>(g.key_dim)),
      value_scale(static_cast<size_t>(g.value_dim)),
      key_factor(static_cast<size_t>(g.rank) * g.key_dim),
      value_factor(static_cast<size_t>(g.rank) * g.value_dim),
      window_key(static_cast<size_t>(g.window) * g.key_dim),
      window_update(static_cast<size_t>(g.window) * g.value_dim),
      window_weight(static_cast<size_t>(g.window)),
      window_gate(kda_values(g, int64_t{g.window} * g.key_dim), kOne),
      log_decay(kda_values(g, g.key_dim)) {}

CheckpointProgram ModelProgram::checkpoint() {
  return {codes.data(),        key_scale.data(), value_scale.data(), key_factor.data(),
          value_factor.data(), geometry.key_dim, geometry.value_dim};
}

WindowProgram ModelProgram::window() {
  return {window_key.data(),      window_update.data(), window_weight.data(),
          row_of(window_gate, 0), row_of(log_decay, 0), &decay};
}

PoolModel::PoolModel(const Geometry& geometry, int64_t slots, std::vector<float> start_basis)
    : geometry_(geometry),
      slots_(slots),
      start_basis_(std::move(start_basis)),
      programs_(static_cast<size_t>(slots * geometry.num_heads), ModelProgram(geometry)) {}

void PoolModel::begin() {
  for (ModelProgram& program : programs_) program.touch = Touch::kNothing;
}

bool PoolModel::is_slot(int64_t slot) {
  if (slot >= slots_) errors |= 1u << LQ_ERROR_INDEX;
  return slot > 0 && slot < slots_;
}

int32_t PoolModel::occupied(ModelProgram& program) {
  if (program.count >= 0 && program.count < 16) return program.count;
  if (program.count == 16 && program.window_weight[15] == 0) return 0;
  errors |= 1u << (program.count == 16 ? LQ_ERROR_UNFLUSHED : LQ_ERROR_COUNTER);
  return -1;
}

void PoolModel::step(int64_t slot, const judge::StepInputs& tokens, int64_t row, Bfloat16* output) {
  std::fill_n(output, geometry_.num_heads * geometry_.value_dim, Bfloat16{0});
  if (!is_slot(slot)) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    ModelProgram& program = at(slot, head);
    const int32_t entry = occupied(program);
    if (entry < 0) continue;
    const auto values = ref::step_values<float>(geometry_, tokens.gate, program.checkpoint(), program.window(), entry,
                                                tokens.token.view().at(row, head));
    ref::write_step(values,
                    {output + head * geometry_.value_dim, &program.window_key[entry * geometry_.key_dim],
                     &program.window_update[entry * geometry_.value_dim],
                     row_of(program.window_gate, entry * geometry_.key_dim), row_of(program.log_decay, 0), nullptr});
    count_entry(program, entry, values.outcome().token_decay);
    program.touch = Touch::kAppended;
  }
}

void PoolModel::count_entry(ModelProgram& program, int32_t entry, float token_decay) {
  if (geometry_.gate == Gate::kGdn) {
    for (int32_t j = 0; j < entry; ++j) program.window_weight[static_cast<size_t>(j)] *= token_decay;
    program.decay *= token_decay;
  }
  program.window_weight[static_cast<size_t>(entry)] = 1.0f;
  program.count = entry + 1;
}

void PoolModel::quantize(ModelProgram& program, std::span<const float> state, std::vector<double> exact) {
  const ref::Factors factors = ref::compress_state<float>(geometry_, state, start_basis_.data());
  ref::quantize_residual<float>(geometry_, state, factors, program.checkpoint());
  program.quantized = std::move(exact);
  program.touch = Touch::kQuantized;
}

void PoolModel::flush_program(ModelProgram& program) {
  const auto state = ref::rebuild_state<float>(geometry_, program.checkpoint(), program.window());
  quantize(program, state, ref::rebuild_state<double>(geometry_, program.checkpoint(), program.window()));
  empty_window(program);
}

void PoolModel::flush(int64_t slot) {
  if (!is_slot(slot)) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    if (at(slot, head).count == 16) flush_program(at(slot, head));
  }
}

void PoolModel::flush_now(int64_t slot) {
  if (!is_slot(slot)) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    ModelProgram& program = at(slot, head);
    if (program.count < 1 || program.count > 16) continue;
    const bool flushed = program.count == 16 && program.window_weight[15] == 0;
    if (!flushed) flush_program(program);
    program.count = 0;
  }
}

void PoolModel::reset(int64_t slot) {
  if (!is_slot(slot)) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    at(slot, head) = ModelProgram(geometry_);
    at(slot, head).touch = Touch::kReplaced;
  }
}

void PoolModel::copy(int64_t source, int64_t target) {
  const bool from_slot = is_slot(source);
  if (!is_slot(target) || !from_slot) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    at(target, head) = at(source, head);
    at(target, head).touch = Touch::kReplaced;
  }
}

void PoolModel::import_state(int64_t slot, std::span<const float> states, std::span<const int32_t> offsets) {
  if (!is_slot(slot)) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    const std::span<const float> state = states.subspan(head * geometry_.state_elements(), geometry_.state_elements());
    ModelProgram& program = at(slot, head) = ModelProgram(geometry_);
    quantize(program, state, {state.begin(), state.end()});
    program.count = offsets[static_cast<size_t>(head)];
  }
}

void PoolModel::export_state(int64_t slot, float* states) {
  std::fill_n(states, geometry_.num_heads * geometry_.state_elements(), 0.0f);
  if (!is_slot(slot)) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    ModelProgram& program = at(slot, head);
    if (program.count < 0 || program.count > 16) {
      errors |= 1u << LQ_ERROR_COUNTER;
      continue;
    }
    const auto state = ref::rebuild_state<float>(geometry_, program.checkpoint(), program.window());
    std::copy(state.begin(), state.end(), states + head * geometry_.state_elements());
  }
}

std::vector<ModelDraft> PoolModel::draft(int64_t slot, const judge::StepInputs& tokens, int64_t row, int32_t count,
                                         std::span<const DraftProgram> seen, Bfloat16* output) {
  const int64_t heads = geometry_.num_heads;
  std::fill_n(output, count * heads * geometry_.value_dim, Bfloat16{0});
  std::vector<ModelDraft> drafts(static_cast<size_t>(heads));
  if (!is_slot(slot)) return drafts;
  for (int64_t head = 0; head < heads; ++head) {
    ModelProgram& program = at(slot, head);
    ModelDraft& draft = drafts[static_cast<size_t>(head)];
    draft.entries = occupied(program);
    if (draft.entries < 0) continue;
    draft.made = true;
    const auto keys = static_cast<size_t>(int64_t{count} * geometry_.key_dim);
    draft.key.resize(keys);
    draft.gate.resize(kda_values(geometry_, std::ssize(draft.key)));
    draft.log_gate.resize(draft.gate.size());
    draft.update.resize(static_cast<size_t>(int64_t{count} * geometry_.value_dim));
    ref::GrownWindow window(geometry_, program.window(), draft.entries, count);
    std::vector<float> log_decay(kda_values(geometry_, geometry_.key_dim));
    for (int32_t t = 0; t < count; ++t) {
      const auto values = ref::step_values<float>(geometry_, tokens.gate, program.checkpoint(), window.view(),
                                                  draft.entries + t, tokens.token.view().at(row + t, head));
      const StepRows rows{output + (t * heads + head) * geometry_.value_dim,
                          &draft.key[static_cast<size_t>(t) * geometry_.key_dim],
                          &draft.update[static_cast<size_t>(t) * geometry_.value_dim],
                          row_of(draft.gate, t * geometry_.key_dim),
                          row_of(log_decay, 0),
                          row_of(draft.log_gate, t * geometry_.key_dim)};
      ref::write_step(values, rows);
      draft.token_decay.push_back(values.outcome().token_decay);
      StepRows attended = rows;
      if (!seen.empty()) {
        const DraftProgram& given = seen[static_cast<size_t>(head)];
        attended.key = given.key + t * geometry_.key_dim;
        attended.update = given.update + t * geometry_.value_dim;
        if (given.gate != nullptr) attended.gate = given.gate + t * geometry_.key_dim;
      }
      window.append(attended, draft.token_decay.back());
    }
  }
  return drafts;
}

void PoolModel::commit(int64_t slot, const std::vector<ModelDraft>& drafts, int32_t accepted) {
  if (!is_slot(slot) || accepted == 0) return;
  for (int64_t head = 0; head < geometry_.num_heads; ++head) {
    ModelProgram& program = at(slot, head);
    const ModelDraft& draft = drafts[static_cast<size_t>(head)];
    const int32_t entries = occupied(program);
    if (entries < 0) continue;
    if (!draft.made || draft.entries != entries) {
      errors |= 1u << LQ_ERROR_COUNTER;
      continue;
    }
    program.touch = Touch::kAppended;
    for (int64_t t = 0; t < accepted; ++t) {
      const int32_t entry = program.count == 16 ? 0 : program.count;
      std::copy_n(&draft.key[t * 128], 128, &program.window_key[entry * 128]);
      std::copy_n(&draft.update[t * 128], 128, &program.window_update[entry * 128]);
      if (geometry_.gate == Gate::kKda) {
        std::copy_n(&draft.gate[t * 128], 128, &program.window_gate[entry * 128]);
        for (int64_t k = 0; k < 128; ++k) program.log_decay[k] += draft.log_gate[t * 128 + k];
      }
      count_entry(program, entry, draft.token_decay[static_cast<size_t>(t)]);
      if (program.count == 16) flush_program(program);
    }
  }
}

}  // namespace leapquant::conformance
