// SPDX-License-Identifier: Apache-2.0
//
// An instruction set by the name that the CPU backend gives it.
#pragma once

#include <hwy/highway.h>
#include <strings.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace leapquant::bench {

// The place in a dispatch table of one of the compiled `targets` that this machine has: the one called `name`, or the
// best for a name that is not known here.
inline size_t target_index(int64_t targets, const std::string& name) {
  const int64_t usable = hwy::SupportedTargets() & targets;
  int64_t wanted = usable & -usable;  // a lower bit is a better target
  for (int64_t rest = usable; rest != 0; rest &= rest - 1) {
    const int64_t bit = rest & -rest;
    const bool named = name == (bit == HWY_AVX3 ? "avx512" : "") || strcasecmp(hwy::TargetName(bit), name.c_str()) == 0;
    if (named) wanted = bit;
  }
  hwy::ChosenTarget chosen;
  chosen.Update(wanted);
  return chosen.GetIndex();
}

}  // namespace leapquant::bench
