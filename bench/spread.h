// SPDX-License-Identifier: Apache-2.0
//
// The times of a repeated measurement.
#pragma once

#include <algorithm>
#include <vector>

namespace leapquant::bench {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

// `times` holds at least one.
inline Spread spread_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

}  // namespace leapquant::bench
