// SPDX-License-Identifier: Apache-2.0
//
// Compiles the SIMD body of the step once per instruction set.
#include "cpu/step_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/step_targets.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "cpu/step_kernel-inl.h"

#if HWY_ONCE

namespace leapquant::cpu {
namespace {

HWY_EXPORT(step_kernel);

}  // namespace

StepKernel step_kernel_of(const Target& target, Gate gate) {
  hwy::ChosenTarget chosen;
  chosen.Update(target.bit);
  return HWY_DISPATCH_TABLE(step_kernel)[chosen.GetIndex()](gate);
}

}  // namespace leapquant::cpu

#endif  // HWY_ONCE
