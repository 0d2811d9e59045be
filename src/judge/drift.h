// SPDX-License-Identifier: Apache-2.0
//
// Drift: thousands of tokens of the recurrence, the state kept in different ways, against the same recurrence in
// double.
//
//   leapquant  checkpoint and window in a pool, stepped and flushed by a backend
//   fp32       dense, fp32 throughout
//   bf16       dense, rounded to bf16 after every token
//   fp16       dense, rounded to fp16 after every token
//   int8       dense, rounded to int8 after every token, a scale a row: its largest magnitude over 127
//
// The arithmetic of the last three is fp32. All outputs are rounded to bf16, as decode kernels give them: 1.6e-3 of
// output error is that rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/geometry.h"
#include "core/status.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::judge {

struct DriftRequest {
  Gate gate = Gate::kKda;
  int64_t tokens = 4096;
  int64_t interval = 64;  // tokens between two records
  uint64_t seed = 1;
  int threads = 0;  // of the dense recurrences; 0: one for each CPU
};

// One way to keep the state. Errors are relative (Frobenius norms) and means over the profile's heads.
struct DriftSeries {
  std::string state;
  int64_t bytes_per_head = 0;        // what a sequence's head takes in memory
  std::vector<double> state_error;   // |S - S64| / |S64| at each record
  std::vector<double> output_error;  // |o - o64| / |o64| over the tokens since the record before
};

// Heads whose tokens and gates have something in common.
struct DriftProfile {
  std::string name;
  std::string description;
  int64_t heads = 0;
  std::vector<DriftSeries> series;
};

struct DriftReport {
  std::vector<int64_t> positions;  // tokens seen at each record
  std::vector<DriftProfile> profiles;
};

// The recorded profile is one of KDA alone. Tokens are at least one interval. `progress` is called with the share done,
// in [0, 1].
Result<DriftReport> measure_drift(const Context& context, const DriftRequest& request,
                                  const std::function<void(double)>& progress);

}  // namespace leapquant::judge
