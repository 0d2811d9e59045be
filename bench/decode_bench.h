// SPDX-License-Identifier: Apache-2.0
//
// Times decoding from a pool in host memory against decoding with dense fp32 states. What is timed is a cycle: as many
// tokens as a window has entries, the flushes that fall due among them included.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/limits.h"
#include "bench/record.h"
#include "bench/spread.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::bench {

struct DecodeCase {
  lq_geometry geometry = lq_geometry_default(LQ_GATE_KDA);
  lq_layout layout = LQ_LAYOUT_COMPACT;
  int64_t batch = 256;
};

// Microseconds of one token of the whole batch: a cycle over its tokens.
struct DecodeTiming {
  Spread us;
  Spread dense_us;    // fp32 states, in the same run, cycle by cycle in turns
  int64_t bytes = 0;  // of one token: what live entries are there to read, what is written, 1/L of the flush
  int64_t dense_bytes = 0;
  int64_t pool_bytes = 0;

  double speedup() const { return dense_us.median / us.median; }
};

struct DecodeResult {
  DecodeCase decode_case;
  int32_t threads = 1;
  DecodeTiming timing;
};

struct DecodeRecord {
  Origin origin;
  std::string backend;
  std::string target;
  std::string device;
  std::vector<std::pair<int32_t, Limits>> limits;  // by thread count
  std::vector<DecodeResult> results;

  const Limits& limits_of(const DecodeResult& result) const;
  // The time in which the machine reads a token's bytes, over the time it took.
  double fraction_of_read_limit(const DecodeResult& result) const;
};

// Bytes that a token of one program moves on average over a cycle, its share of the flush included; and with a dense
// fp32 state.
int64_t decode_program_bytes(const lq_geometry& geometry);
int64_t dense_program_bytes(const lq_geometry& geometry);

// Heads are staggered: of a sequence's H heads, H / L are due at each token.
DecodeTiming time_decode(const Context& context, const DecodeCase& decode_case);

struct DecodeRuns {
  std::string backend;           // empty: the build's first
  std::vector<int32_t> threads;  // a thread count each; 0 is what the backend chooses. None: 1 and 0
  std::vector<DecodeCase> cases;
};

// Runs every case with every thread count. `progress` is called with the share done, in [0, 1].
DecodeRecord run_decodes(const DecodeRuns& runs, const std::function<void(double)>& progress);

nlohmann::ordered_json to_json(const DecodeRecord& record);

}  // namespace leapquant::bench
