// SPDX-License-Identifier: Apache-2.0
//
// What the two sides of leapquant bench share: flush and step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "definition_options.h"
#include "judge/tensors.h"

namespace leapquant::cli {

struct BenchOptions {
  std::string op = "flush";
  std::string backend;
  std::string gate = "kda";
  std::vector<int64_t> batches;  // empty: the operation's own
  int64_t programs = 0;          // not 0: the batches that make up so many, whatever the heads
  std::vector<int32_t> threads;
  std::vector<std::string> due = {"all", "1/16", "none"};
  std::vector<std::string> layouts = {"compact"};
  std::vector<int32_t> heads = {32};
  int32_t key_heads = 0;  // 0: as many as heads
  std::vector<int32_t> ranks = {4};
  DefinitionOptions definition;
  std::string json;
};

std::vector<Geometry> geometries_of(const BenchOptions& options);
// The batches that are asked for, or `otherwise`.
std::vector<int64_t> batches_of(const BenchOptions& options, const Geometry& geometry,
                                const std::vector<int64_t>& otherwise);

// leapquant bench --op step on a CPU
void bench_decode(const BenchOptions& options);

}  // namespace leapquant::cli
