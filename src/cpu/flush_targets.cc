// SPDX-License-Identifier: Apache-2.0
//
// Compiles the SIMD body once per instruction set and lists those that this machine has.
#include "cpu/flush_kernel.h"

// Arrays of vectors need vectors of a known size.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/flush_targets.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "cpu/flush_kernel-inl.h"

#if HWY_ONCE

#include <algorithm>
#include <cctype>

namespace leapquant::cpu {
namespace {

HWY_EXPORT(flush_kernel);

// "AVX3" is the library's word for AVX-512; the rest are known names in lower case.
std::string target_name(int64_t target) {
  if (target == HWY_AVX3) return "avx512";
  std::string name = hwy::TargetName(target);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

}  // namespace

std::vector<FlushTarget> flush_targets() {
  std::vector<FlushTarget> targets;
  // A lower bit is a better target.
  for (int64_t rest = hwy::SupportedTargets() & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::ChosenTarget chosen;
    chosen.Update(target);
    targets.push_back({target_name(target), HWY_DISPATCH_TABLE(flush_kernel)[chosen.GetIndex()]});
  }
  return targets;
}

}  // namespace leapquant::cpu

#endif  // HWY_ONCE
