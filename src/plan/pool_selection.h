// SPDX-License-Identifier: Apache-2.0
//
// Which of a pool's programs an in-place call works on.
#pragma once

#include <cstdint>

#include "core/program_view.h"
#include "plan/error_word.h"

namespace leapquant {

// In the functional forms there is no selection: every program of the batch is meant.
struct PoolSelection {
  const int32_t* slot_index = nullptr;  // [batch]; entries <= 0 name no sequence
  Strided<int32_t> fill_count;          // [num_slots, H]; due to a flush when equal to the window length
  int64_t num_slots = 0;
  ErrorWord* errors = nullptr;
};

}  // namespace leapquant
