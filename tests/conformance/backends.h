// SPDX-License-Identifier: Apache-2.0
//
// What the conformance suite runs over, and what its tests share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "judge/families.h"
#include "judge/pool_io.h"
#include "judge/verify.h"
#include "leapquant/leapquant.hpp"

namespace leapquant::conformance {

struct BackendUnderTest {
  std::string name;
  std::string target;
};

// For messages of the test framework.
inline void PrintTo(const BackendUnderTest& backend, std::ostream* out) {
  *out << backend.name << " " << backend.target;
}

// Every backend with every target that this machine has.
std::vector<BackendUnderTest> backends_under_test();
std::string test_name(const testing::TestParamInfo<BackendUnderTest>& info);

class BackendTest : public testing::TestWithParam<BackendUnderTest> {
 protected:
  // Threads are ignored by a backend that has only one.
  Context context(int32_t threads = 1) const {
    return Context(GetParam().name, GetParam().name == "ref" ? 1 : threads, GetParam().target);
  }
};

// Instantiates a suite derived from BackendTest over all of them.
#define LQ_FOR_ALL_BACKENDS(suite) \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, testing::ValuesIn(backends_under_test()), test_name)

Geometry geometry_of(int32_t heads, int32_t rank = 4);
judge::FlushInputs inputs_of(judge::Family family, const Geometry& geometry, int64_t batch, uint64_t seed = 7);

// One item of a batch as a batch of its own.
judge::FlushInputs item_of(const judge::FlushInputs& inputs, int64_t item);

// Replaces one program of `to`, counted as item * H + head, by that of `from`.
void copy_program(const judge::CheckpointTensors& from, int64_t program, judge::CheckpointTensors& to);

judge::CheckpointTensors flush_or_die(const Context& context, const judge::FlushInputs& inputs);

// All bytes of checkpoints, in the order of the struct.
std::vector<unsigned char> bytes_of(const judge::CheckpointTensors& tensors);

// All bytes of a pool: raw, window tensors, counters.
std::vector<unsigned char> bytes_of(const Pool& pool);

lq_tensor index_tensor(std::vector<int32_t>& indices);

// A pool whose slots 1, 2, ... hold the items of `inputs`, all programs due.
Pool filled_pool(const Context& context, const judge::FlushInputs& inputs, int64_t num_slots,
                 lq_layout layout = LQ_LAYOUT_COMPACT);

}  // namespace leapquant::conformance
