// SPDX-License-Identifier: Apache-2.0
#include "bench/flush_case.h"

#include <utility>

#include "judge/random.h"
#include "judge/verify.h"

namespace leapquant::bench {
namespace {

constexpr uint64_t kSeed = 1;
constexpr int32_t kNotDue = 3;  // entries in the window of such a program

}  // namespace

const char* due_name(Due due) {
  switch (due) {
    case Due::kAll:
      return "all";
    case Due::kSixteenth:
      return "1/16";
    case Due::kNone:
      return "none";
  }
  return "unknown";
}

int64_t flush_program_bytes(const lq_geometry& geometry) {
  const int64_t keys = geometry.key_dim;
  const int64_t values = geometry.value_dim;
  const int64_t window = geometry.window;
  const int64_t checkpoint = values * keys + 4 * (keys + values) + 2 * geometry.rank * (keys + values);
  // Read, then written: w, gbuf, pcum; or w, p.
  const int64_t reset = 4 * window + (geometry.gate == LQ_GATE_KDA ? 2 * window * keys + 4 * keys : 4);
  return 2 * checkpoint + 2 * window * (keys + values) + 2 * reset;
}

int64_t flush_program_multiply_adds(const lq_geometry& geometry) {
  const int64_t elements_of_state = int64_t{geometry.value_dim} * geometry.key_dim;
  return elements_of_state * (geometry.window + 5 * int64_t{geometry.rank});
}

judge::FlushInputs bench_inputs(const lq_geometry& geometry, int64_t items) {
  judge::FamilyRequest request;
  request.geometry = judge::internal_geometry(geometry);
  request.family = judge::Family::kRandom;
  request.batch = items;
  request.seed = kSeed;
  Result<judge::FlushInputs> inputs = judge::make_inputs(request);
  if (!inputs.ok()) throw Error(LQ_INVALID_ARGUMENT, inputs.status().message());
  return std::move(inputs.value());
}

int64_t draw_counters(const lq_geometry& geometry, Due due, std::span<int32_t> counters) {
  int64_t count = 0;
  for (size_t n = 0; n < counters.size(); ++n) {
    const bool reserved = n < static_cast<size_t>(geometry.num_heads);  // slot 0
    const bool drawn = judge::hash_words({kSeed, uint64_t{n}}) % 16 == 0;
    const bool is_due = !reserved && (due == Due::kAll || (due == Due::kSixteenth && drawn));
    counters[n] = is_due ? geometry.window : kNotDue;
    count += is_due ? 1 : 0;
  }
  return count;
}

}  // namespace leapquant::bench
