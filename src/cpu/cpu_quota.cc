// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace leapquant::cpu {
namespace {

int affinity_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

int whole_threads(double quota, double period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<int>(std::clamp(quota / period, 1.0, 1e6));
}

int smaller_quota(int a, int b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

// cpu.max: "<quota or max> <period>"
int unified_quota(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max") return 0;
  std::istringstream number(quota);
  double microseconds = 0;
  return number >> microseconds ? whole_threads(microseconds, period) : 0;
}

int legacy_quota(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  return quota_file >> quota && period_file >> period ? whole_threads(quota, period) : 0;
}

// The smallest quota of a group and its parents. A container often sees only its own group, mounted at the root.
template <class Quota>
int quota_up_to_root(const std::string& root, std::string path, Quota quota) {
  int threads = quota(root);
  while (path.size() > 1) {
    threads = smaller_quota(threads, quota(root + path));
    path.resize(path.rfind('/'));
  }
  return threads;
}

}  // namespace

int quota_threads(const std::string& membership, const std::string& cgroup_root) {
  int threads = 0;
  std::istringstream lines(membership);
  for (std::string line; std::getline(lines, line);) {  // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      threads = smaller_quota(threads, quota_up_to_root(cgroup_root, path, unified_quota));
    } else if (("," + controllers + ",").find(",cpu,") != std::string::npos) {
      threads = smaller_quota(threads, quota_up_to_root(cgroup_root + "/" + controllers, path, legacy_quota));
      threads = smaller_quota(threads, quota_up_to_root(cgroup_root + "/cpu", path, legacy_quota));
    }
  }
  return threads;
}

int available_threads() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream membership;
  membership << file.rdbuf();
  const int quota = quota_threads(membership.str(), "/sys/fs/cgroup");
  return std::max(1, smaller_quota(affinity_threads(), quota));
}

}  // namespace leapquant::cpu
