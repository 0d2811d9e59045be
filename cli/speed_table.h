// SPDX-License-Identifier: Apache-2.0
//
// The speed table that `bench` and `report` print.
#pragma once

#include "bench/record.h"

namespace leapquant::cli {

void print_speed_table(const bench::FlushRecord& record);

}  // namespace leapquant::cli
