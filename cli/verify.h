// SPDX-License-Identifier: Apache-2.0
//
// What the two sides of leapquant verify share: its options, and how they are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "definition_options.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::cli {

struct VerifyOptions {
  std::string backend;
  std::string op = "flush";
  std::string gate = "kda";
  std::vector<std::string> gate_functions = {"softplus", "bounded"};  // of the step
  std::vector<int64_t> batches = {16, 32, 64, 128, 256, 512};
  Geometry geometry;
  int32_t key_heads = 0;              // 0: as many as heads
  std::vector<std::string> families;  // none: those of the operation
  uint64_t seed = 0;
  int64_t programs = 0;
  int threads = 0;
  std::string json;
  DefinitionOptions definition;
  std::string data;
};

Geometry requested_geometry(const VerifyOptions& options);
std::vector<std::string> families_or(const VerifyOptions& options, std::vector<std::string> of_the_operation);

// How many seeds it takes until so many programs are judged, at `per_seed` of them each; at least one.
int64_t seeds_of(const VerifyOptions& options, int64_t per_seed);

Context make_context(const VerifyOptions& options);

// --op step
void verify_step(const VerifyOptions& options);

}  // namespace leapquant::cli
