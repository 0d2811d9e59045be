// SPDX-License-Identifier: Apache-2.0
//
// Faults at the system calls of a save. The test program is linked with --wrap for each of them, so that the library
// runs unchanged and the n-th call fails, falls short, or ends the process.
#pragma once

namespace leapquant::io {

enum class Fault {
  kNone,
  kError,       // the call fails with the armed errno
  kKillBefore,  // the process dies before the call
  kKillAfter,   // the process dies when the call has been done; a write is done in part
};

// Arms a fault at call number `n` from now (0 is the next), counted over all wrapped calls.
void arm_fault(Fault fault, int n, int error);
void disarm_faults();

// Whether the armed call was reached.
bool fault_struck();

// Makes every write take at most this many bytes; 0 is no limit.
void limit_writes(long bytes);

}  // namespace leapquant::io
