// SPDX-License-Identifier: Apache-2.0
//
// Every geometry and family on every backend keeps the strict bound, program by program.
#include "backends.h"
#include "judge/random.h"

namespace leapquant::conformance {
namespace {

using AccuracyTest = BackendTest;

// The judge is arithmetic alone, which sanitizers slow down twentyfold: they see every rank and fewer programs, the
// plain build sees all.
TEST_P(AccuracyTest, EveryHeadCountAndRank) {
  const Context backend = context();
  for (const int32_t heads : kHeadCounts) {
    for (const int32_t rank : {1, 2, 4, 8}) {
      expect_within_bound(backend, judge::Family::kStructured, geometry_of(heads, rank), 1);
    }
  }
}

TEST_P(AccuracyTest, EveryFamily) {
  const Context backend = context(2);
  for (const judge::Family family : judge::all_families()) {
    for (const int32_t rank : {1, 2, 4, 8}) expect_within_bound(backend, family, geometry_of(8, rank), kFamilyBatch);
  }
}

TEST_P(AccuracyTest, LargestBatchOfOneHead) {
  expect_within_bound(context(2), judge::Family::kRandom, geometry_of(1, 4), kLargestBatch);
}

// One of these states is of rank five but for 1e-3: an error of 2^-18 in a window's key turns some 25 of the new
// factors' roundings to halves, and its residual has too few directions to average that out. They are programs that
// `verify --seed 1 --batch 64 --family policy` draws.
TEST_P(AccuracyTest, LastBitsOfWindowKeysCount) {
  const uint64_t seed = judge::hash_words({1, 64});
  expect_within_bound(context(), item_of(inputs_of(judge::Family::kPolicy, geometry_of(32, 4), 64, seed), 30));
}

LQ_FOR_ALL_BACKENDS(AccuracyTest);

}  // namespace
}  // namespace leapquant::conformance
