// SPDX-License-Identifier: Apache-2.0
//
// leapquant bench --op step: decode from a pool, flushes included, against decoding with fp32 states.
#include <fmt/format.h>

#include "bench.h"
#include "bench/decode_bench.h"
#include "json_output.h"
#include "judge/verify.h"
#include "progress.h"

namespace leapquant::cli {
namespace {

std::vector<bench::DecodeCase> cases_of(const BenchOptions& options) {
  std::vector<bench::DecodeCase> cases;
  for (const Geometry& geometry : geometries_of(options)) {
    for (const int64_t batch : batches_of(options, geometry, {256})) {
      for (const std::string& layout : options.layouts) {
        cases.push_back({.geometry = judge::public_geometry(geometry),
                         .layout = layout == "padded" ? LQ_LAYOUT_PADDED : LQ_LAYOUT_COMPACT,
                         .batch = batch});
      }
    }
  }
  return cases;
}

void print_table(const bench::DecodeRecord& record) {
  fmt::print("{} {}: {}\n", record.backend, record.target, record.device);
  for (const auto& [threads, limits] : record.limits) {
    fmt::print("limits on {} thread{}: {:.1f} GB/s read, {:.1f} GB/s read + written\n", threads,
               threads == 1 ? "" : "s", limits.read_bytes_per_s * 1e-9, limits.memory_bytes_per_s * 1e-9);
  }
  fmt::print(
      "us a token of the batch, over cycles of as many tokens as a window has entries, their flushes included\n");
  fmt::print("{:>5} {:>5} {:>4} {:>7} {:>7} | {:>10} {:>10} {:>10} | {:>8} {:>8} | {:>11} {:>8} | {:>7}\n", "batch",
             "heads", "rank", "layout", "threads", "median", "min", "max", "GB/s", "of read", "fp32 states", "GB/s",
             "speedup");
  for (const bench::DecodeResult& result : record.results) {
    const bench::DecodeTiming& timing = result.timing;
    fmt::print(
        "{:>5} {:>5} {:>4} {:>7} {:>7} | {:>10.1f} {:>10.1f} {:>10.1f} | {:>8.1f} {:>6.1f} % | {:>11.1f} {:>8.1f} | "
        "{:>6.2f}x\n",
        result.decode_case.batch, result.decode_case.geometry.num_heads, result.decode_case.geometry.rank,
        result.decode_case.layout == LQ_LAYOUT_PADDED ? "padded" : "compact", result.threads, timing.us.median,
        timing.us.min, timing.us.max, static_cast<double>(timing.bytes) / timing.us.median * 1e-3,
        record.fraction_of_read_limit(result) * 100, timing.dense_us.median,
        static_cast<double>(timing.dense_bytes) / timing.dense_us.median * 1e-3, timing.speedup());
  }
}

}  // namespace

void bench_decode(const BenchOptions& options) {
  bench::DecodeRecord record;
  {
    Progress progress("bench");
    record = bench::run_decodes({options.backend, options.threads, cases_of(options)},
                                [&](double share) { progress.update(share, "step"); });
  }
  if (options.json != "-") print_table(record);  // stdout holds one of the two
  if (!options.json.empty()) write_json(options.json, bench::to_json(record));
}

}  // namespace leapquant::cli
