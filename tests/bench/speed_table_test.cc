// SPDX-License-Identifier: Apache-2.0
//
// The table that `bench` and `report` print.
#include "speed_table.h"

#include <gtest/gtest.h>

#include "results.h"

namespace leapquant::cli {
namespace {

template <class Record>
void expect_printed(const Record& record, std::initializer_list<const char*> parts) {
  testing::internal::CaptureStdout();
  print_speed_table(record);
  const std::string text = testing::internal::GetCapturedStdout();
  for (const char* part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(SpeedTable, OfAHost) {
  expect_printed(bench::made_up_host_record(), {"backend cpu, simd, on a processor", "limits on 2 threads: 2.0 G",
                                                "vs ref", "50.0x", "50.0 %", "25.0 %", "none"});
}

TEST(SpeedTable, OfAGpu) {
  expect_printed(bench::made_up_gpu_record(),
                 {"backend cuda, sm_00, on a device", "6 multiprocessors", "700 MHz", "driver 1.2.3", "stream us",
                  "   16    32    4 compact  all ", "40.0        39.0        44.0", "10.0    25.0 %", "none"});
}

TEST(SpeedTable, OfSteps) {
  expect_printed(bench::made_up_step_record(),
                 {"backend cuda, sm_00, on a device", "compact  step     8 |     40.00", "20.00         -    50.0 %",
                  "cycle   all", "20.00     10.00    75.0 %"});
}

}  // namespace
}  // namespace leapquant::cli
