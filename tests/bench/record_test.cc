// SPDX-License-Identifier: Apache-2.0
//
// The JSON of a record: the fields that both kinds of machine share, and those of each.
#include <gtest/gtest.h>

#include "results.h"

namespace leapquant::bench {
namespace {

using Json = nlohmann::ordered_json;

void expect_shared_fields(const Json& record) {
  for (const char* key : {"backend", "target", "device", "commit", "date", "command", "limits", "results"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  for (const Json& row : record["results"]) {
    for (const char* key : {"op", "gate", "batch", "heads", "rank", "layout", "due", "threads", "median_us", "min_us",
                            "max_us", "programs_per_s", "bytes", "fraction_of_limit", "due_programs", "pool_bytes"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
}

TEST(Record, NamesWhenAndHowItCameAbout) {
  const RecordHead record = begin_record();
  EXPECT_EQ(record.date.size(), std::string("2000-01-01T00:00:00Z").size());
  EXPECT_EQ(record.date.back(), 'Z');
  EXPECT_EQ(record.command.rfind("test_bench", 0), 0u) << record.command;
}

TEST(Record, OfAHostHoldsItsLimitsByThreads) {
  const Json record = to_json(made_up_host_record());
  expect_shared_fields(record);
  EXPECT_FALSE(record.contains("gpu"));
  EXPECT_EQ(record["limits"]["by_threads"][0]["threads"], 2);
  EXPECT_EQ(record["limits"]["last_level_cache_bytes"], 5);
  EXPECT_EQ(record["limits"]["reference_us_per_program"], 25);
  EXPECT_EQ(record["results"][0]["fraction_of_limit"], 0.5);
  EXPECT_EQ(record["results"][0]["multiply_add_fraction"], 0.5);
  EXPECT_EQ(record["results"][0]["memory_fraction"], 0.25);
  EXPECT_EQ(record["results"][1]["fraction_of_limit"], 0);
}

TEST(Record, OfAGpuHoldsTheStreamsOfEveryCase) {
  const Json record = to_json(made_up_gpu_record());
  expect_shared_fields(record);
  EXPECT_EQ(record["gpu"]["driver"], "1.2.3");
  EXPECT_EQ(record["gpu"]["cuda_runtime"], "4.4");
  EXPECT_EQ(record["gpu"]["sm_clock_mhz"], 700);
  EXPECT_EQ(record["limits"]["last_level_cache_bytes"], 9);
  EXPECT_DOUBLE_EQ(record["limits"]["memory_bytes_per_s"].get<double>(), 8e9);
  const Json& all = record["results"][0];
  EXPECT_EQ(all["stream_us"], 10);
  EXPECT_EQ(all["stream_kernel_us"], 10);
  EXPECT_EQ(all["stream_memcpy_us"], 12);
  EXPECT_EQ(all["fraction_of_limit"], 0.25);
  EXPECT_DOUBLE_EQ(all["programs_per_s"].get<double>(), 2e6);
  EXPECT_FALSE(all.contains("multiply_add_fraction"));
  EXPECT_EQ(record["results"][1]["fraction_of_limit"], 0);
}

TEST(Record, OfStepsHoldsTheStreamsOfEveryCase) {
  const Json record = to_json(made_up_step_record());
  EXPECT_EQ(record["gpu"]["driver"], "1.2.3");
  EXPECT_DOUBLE_EQ(record["limits"]["read_bytes_per_s"].get<double>(), 4e9);
  const Json& step = record["results"][0];
  EXPECT_EQ(step["op"], "step");
  EXPECT_EQ(step["fill"], 8);
  EXPECT_EQ(step["step_stream_us"], 20);
  EXPECT_EQ(step["fraction_of_limit"], 0.5);
  EXPECT_FALSE(step.contains("flush_bytes"));
  const Json& cycle = record["results"][1];
  EXPECT_EQ(cycle["op"], "cycle");
  EXPECT_EQ(cycle["flush_stream_us"], 10);
  EXPECT_EQ(cycle["fraction_of_limit"], 0.75);
  EXPECT_FALSE(cycle.contains("fill"));
}

}  // namespace
}  // namespace leapquant::bench
