// SPDX-License-Identifier: Apache-2.0
#include "cpu/targets.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cctype>

namespace leapquant::cpu {
namespace {

// "AVX3" is the library's word for AVX-512; the rest are known names in lower case.
std::string target_name(int64_t target) {
  if (target == HWY_AVX3) return "avx512";
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace

std::vector<Target> usable_targets() {
  std::vector<Target> targets;
  // A lower bit is a better target.
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t bit = rest & -rest;
    targets.push_back({target_name(bit), bit});
  }
  return targets;
}

}  // namespace leapquant::cpu
