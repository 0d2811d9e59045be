// SPDX-License-Identifier: Apache-2.0
//
// The scratch that holds drafted tokens between draft and commit: one record a program, [n, H] of them. Host and device
// code include it.
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
  int32_t unused;
};
static_assert(sizeof(DraftHeader) == kDraftAlignment);

// Offsets in a record, in bytes from its start:
//
//   header | key [T, K] bf16 | update [T, V] bf16 | gate [T, K] fp16 | log_gate [T, K] fp32 | log_decay [K] fp32
struct DraftLayout {
  int64_t key;
  int64_t update;
  int64_t gate;
  int64_t log_gate;
  int64_t log_decay;
  int64_t end;  // bytes of a record
};

constexpr DraftLayout draft_layout(const Geometry& geometry, int32_t tokens) {
  const auto after = [](int64_t offset, int64_t bytes) {
    return (offset + bytes + kDraftAlignment - 1) / kDraftAlignment * kDraftAlignment;
  };
  const int64_t keys = int64_t{tokens} * geometry.key_dim;
  DraftLayout layout{.key = sizeof(DraftHeader)};
  layout.update = after(layout.key, keys * 2);
  layout.gate = after(layout.update, int64_t{tokens} * geometry.value_dim * 2);
  layout.log_gate = after(layout.gate, keys * 2);
  layout.log_decay = after(layout.log_gate, keys * 4);
  layout.end = after(layout.log_decay, int64_t{geometry.key_dim} * 4);
  return layout;
}

// One program's record. Row t is what the step of token t would append.
struct DraftProgram {
  DraftHeader* header;
  Bfloat16* key;     // [T, K]
  Bfloat16* update;  // [T, V]
  Half* gate;        // [T, K]
  float* log_gate;   // [T, K]
  float* log_decay;  // [K] with all of the tokens' gates
};

// Records of [n, H] programs. A commit only reads them.
struct DraftView {
  char* base = nullptr;
  DraftLayout layout{};
  int64_t num_heads = 0;

  DraftProgram at(int64_t item, int64_t head) const {
    char* const record = base + (item * num_heads + head) * layout.end;
    return {reinterpret_cast<DraftHeader*>(record),
            reinterpret_cast<Bfloat16*>(record + layout.key),
            reinterpret_cast<Bfloat16*>(record + layout.update),
            reinterpret_cast<Half*>(record + layout.gate),
            reinterpret_cast<float*>(record + layout.log_gate),
            reinterpret_cast<float*>(record + layout.log_decay)};
  }
};

}  // namespace leapquant
