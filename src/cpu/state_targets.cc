// SPDX-License-Identifier: Apache-2.0
//
// Compiles the SIMD body of imports and exports once per instruction set.
#include "cpu/state_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/state_targets.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "cpu/state_kernel-inl.h"

#if HWY_ONCE

namespace leapquant::cpu {
namespace {

HWY_EXPORT(state_kernel);

}  // namespace

StateKernel state_kernel_of(const Target& target, int32_t rank) {
  hwy::ChosenTarget chosen;
  chosen.Update(target.bit);
  return HWY_DISPATCH_TABLE(state_kernel)[chosen.GetIndex()](rank);
}

}  // namespace leapquant::cpu

#endif  // HWY_ONCE
