// SPDX-License-Identifier: Apache-2.0
//
// How many threads this process may keep busy: its CPU affinity, and the quota of the container it runs in.
#pragma once

#include <string>

namespace leapquant::cpu {

// The smaller of the affinity mask's size and the CPU quota of the process's control groups, rounded down; at least 1.
int available_threads();

// CPU quota of the control groups that `membership` (the text of /proc/self/cgroup) names below `cgroup_root`, rounded
// down, at least 1; 0 when there is none. Reads version 2 (cpu.max, also of the parents) and version 1
// (cpu.cfs_quota_us). Separate for tests.
int quota_threads(const std::string& membership, const std::string& cgroup_root);

}  // namespace leapquant::cpu
