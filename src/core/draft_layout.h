// SPDX-License-Identifier: Apache-2.0
//
// The scratch that holds drafted tokens between draft and commit: one record a program, [n, H] of them. Kernels know it
// by cuda/draft/config.h.
#pragma once

#include <cstdint>

#include "core/geometry.h"
#include "core/program_view.h"

namespace leapquant {

inline constexpr int32_t kMaxDraftTokens = 8;
inline constexpr int64_t kDraftAlignment = 16;  // of a record, and of its parts

// How a record came about: a commit appends nothing from one that does not fit the window as it is now.
struct DraftHeader {
  int32_t tokens;      // T; 0 when the program was not drafted
  int32_t entries;     // occupied entries of the window then
  uint32_t nonfinite;  // bit t: the results of token t hold NaN or Inf
  int32_t stage;       // a commit's own, on devices, from one of its launches to the next; 0 otherwise
};
static_assert(sizeof(DraftHeader) == kDraftAlignment);

// Offsets in a record, in bytes from its start:
//
//   header | key [T, K] bf16 | update [T, V] bf16 | what the gate needs:
//     KDA  gate [T, K] fp16 | log_gate [T, K] fp32 | log_decay [K] fp32
//     GDN  token_decay [T] fp32 | weight [L + T] fp32 | decay [1] fp32
//
// 0 for what the other gate needs.
struct DraftLayout {
  int64_t key = 0;
  int64_t update = 0;
  int64_t gate = 0;
  int64_t log_gate = 0;
  int64_t log_decay = 0;
  int64_t token_decay = 0;
  int64_t weight = 0;
  int64_t decay = 0;
  int64_t end = 0;  // bytes of a record
};

constexpr DraftLayout draft_layout(const Geometry& geometry, int32_t tokens) {
  const auto after = [](int64_t offset, int64_t bytes) {
    return (offset + bytes + kDraftAlignment - 1) / kDraftAlignment * kDraftAlignment;
  };
  const int64_t keys = int64_t{tokens} * geometry.key_dim;
  DraftLayout layout{.key = sizeof(DraftHeader)};
  layout.update = after(layout.key, keys * 2);
  const int64_t rows_end = after(layout.update, int64_t{tokens} * geometry.value_dim * 2);
  if (geometry.gate == Gate::kKda) {
    layout.gate = rows_end;
    layout.log_gate = after(layout.gate, keys * 2);
    layout.log_decay = after(layout.log_gate, keys * 4);
    layout.end = after(layout.log_decay, int64_t{geometry.key_dim} * 4);
  } else {
    layout.token_decay = rows_end;
    layout.weight = after(layout.token_decay, int64_t{tokens} * 4);
    layout.decay = after(layout.weight, (int64_t{geometry.window} + tokens) * 4);
    layout.end = after(layout.decay, 4);
  }
  return layout;
}

// One program's record. Row t is what the step of token t would append. Members of the other gate are null.
struct DraftProgram {
  DraftHeader* header;
  Bfloat16* key;       // [T, K]
  Bfloat16* update;    // [T, V]
  Half* gate;          // [T, K] KDA
  float* log_gate;     // [T, K] KDA
  float* log_decay;    // [K] KDA: with all of the tokens' gates
  float* token_decay;  // [T] GDN
  float* weight;       // [L + T] GDN: of the occupied entries, and the drafted ones behind them, as they have decayed
  float* decay;        // [1] GDN: with all of the tokens' gates
};

// Records of [n, H] programs. A commit leaves them as they are.
struct DraftView {
  char* base = nullptr;
  DraftLayout layout{};
  int64_t num_heads = 0;

  DraftProgram at(int64_t item, int64_t head) const {
    char* const record = base + (item * num_heads + head) * layout.end;
    return {reinterpret_cast<DraftHeader*>(record),  part<Bfloat16>(record, layout.key),
            part<Bfloat16>(record, layout.update),   part<Half>(record, layout.gate),
            part<float>(record, layout.log_gate),    part<float>(record, layout.log_decay),
            part<float>(record, layout.token_decay), part<float>(record, layout.weight),
            part<float>(record, layout.decay)};
  }

 private:
  template <class T>
  static T* part(char* record, int64_t offset) {
    return offset == 0 ? nullptr : reinterpret_cast<T*>(record + offset);
  }
};

}  // namespace leapquant
