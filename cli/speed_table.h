// SPDX-License-Identifier: Apache-2.0
//
// The speed tables that `bench` and `report` print.
#pragma once

#include "bench/record.h"

namespace leapquant::cli {

void print_speed_table(const bench::FlushRecord& record);
void print_speed_table(const bench::StepRecord& record);

}  // namespace leapquant::cli
