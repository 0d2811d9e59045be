// SPDX-License-Identifier: Apache-2.0
#include "ref/grown_window.h"

#include "core/append_weight.h"

namespace leapquant::ref {
namespace {

// Nothing of a tensor of the other gate, which is null.
template <class T>
std::vector<T> with_room(const T* from, int64_t count, int64_t room) {
  std::vector<T> values;
  values.reserve(static_cast<size_t>(count + room));
  if (from != nullptr) values.insert(values.end(), from, from + count);
  return values;
}

}  // namespace

GrownWindow::GrownWindow(const Geometry& geometry, const WindowProgram& window, int64_t entries, int64_t room)
    : geometry_(geometry),
      key_(with_room(window.window_key, entries * geometry.key_dim, room * geometry.key_dim)),
      update_(with_room(window.window_update, entries * geometry.value_dim, room * geometry.value_dim)),
      weight_(with_room(window.window_weight, entries, room)),
      gate_(with_room(window.window_gate, entries * geometry.key_dim, room * geometry.key_dim)),
      log_decay_(with_room(window.log_decay, geometry.key_dim, 0)),
      decay_(window.decay == nullptr ? 1.0f : *window.decay) {}

WindowProgram GrownWindow::view() {
  return {key_.data(), update_.data(), weight_.data(), gate_.data(), log_decay_.data(), &decay_};
}

void GrownWindow::append(const StepRows& rows, float token_decay) {
  const auto entries = std::ssize(weight_);
  key_.insert(key_.end(), rows.key, rows.key + geometry_.key_dim);
  update_.insert(update_.end(), rows.update, rows.update + geometry_.value_dim);
  weight_.push_back(0.0f);
  append_weight(geometry_.gate, view(), entries, token_decay);
  if (geometry_.gate == Gate::kGdn) return;
  gate_.insert(gate_.end(), rows.gate, rows.gate + geometry_.key_dim);
  log_decay_.assign(rows.log_decay, rows.log_decay + geometry_.key_dim);
}

}  // namespace leapquant::ref
