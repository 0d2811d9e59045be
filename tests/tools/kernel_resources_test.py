# SPDX-License-Identifier: Apache-2.0
"""What ptxas reports, as the resource table reads it."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import kernel_resources

# Two architectures; a function that was not inlined, with a stack of its own; a kernel that spills.
REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1av' for 'sm_80'
ptxas info    : Function properties for _Z1av
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 183 registers, used 1 barriers, 824 bytes cmem[0]
ptxas info    : Function properties for _Z6helperv
    16 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function '_Z1av' for 'sm_120f'
ptxas info    : Function properties for _Z1av
    40 bytes stack frame, 44 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 40 bytes cumulative stack size, 1024 bytes smem
"""


class KernelResources(unittest.TestCase):
    def test_each_kernel_of_each_architecture_is_read(self):
        entries = list(kernel_resources.parse(REPORT))
        self.assertEqual(
            [tuple(entry.values()) for entry in entries],
            [("_Z1av", "sm_80", 183, 0, 0, 0, 0), ("_Z1av", "sm_120f", 128, 1024, 40, 44, 60)],
        )
        self.assertEqual([kernel_resources.uses_local_memory(entry) for entry in entries], [False, True])


if __name__ == "__main__":
    unittest.main()
