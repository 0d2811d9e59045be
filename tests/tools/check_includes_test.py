# SPDX-License-Identifier: Apache-2.0
"""Plants breaches of the include rules in a small tree, and legal lines that look like one."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import check_includes


class CheckIncludes(unittest.TestCase):
    def breaches(self, name, text):
        with tempfile.TemporaryDirectory() as root:
            path = Path(root, name)
            path.parent.mkdir(parents=True)
            path.write_text(text, encoding="utf-8")
            return [(str(inside), line) for inside, line, _ in check_includes.breaches(Path(root))]

    def test_breaches_are_found_where_they_stand(self):
        cases = {
            "src/core/a.h": '#include "plan/backend.h"',
            "src/core/b.h": "#include <fmt/format.h>",
            "src/plan/a.h": '#include "cpu/flush.h"',
            "src/pool/a.cc": '#include "api/validate.h"',
            "src/ref/a.cc": '#include "leapquant/leapquant.h"',
            "src/cpu/a.cc": '#include "ref/flush.h"',
            "src/cpu/b.cc": '#define HWY_TARGET_INCLUDE "ref/flush.cc"',
            "src/api/a.cc": '#include "cpu/cpu_backend.h"',
            "src/api/b.cc": "#include <hwy/highway.h>",
            "src/api/c.cc": '#include "hwy/highway.h"',
            "src/io/a.cc": "#  include <leapquant/leapquant.h>",
            "src/judge/a.cc": '#include "cpu/cpu_backend.h"',
            "cli/a.cc": '#include "core/geometry.h"',
            "bench/a.cc": '#include "plan/flush_plan.h"',
            "cli/b.cc": "#include <cuda_runtime_api.h>",
            "src/device/a.cc": '#include "cuda/common/check.h"',
            "include/leapquant/a.h": "#include <nlohmann/json.hpp>",
            "src/cpu/kernel.cuh": "kernel<<<1, 1>>>();",
        }
        for name, line in cases.items():
            with self.subTest(name):
                self.assertEqual(self.breaches(name, f"// first line\n{line}\n"), [(name, 2)])

    def test_lawful_lines_pass(self):
        cases = {
            "src/core/a.h": '#include <vector>\n#include <sys/mman.h>\n#include "core/b.h"',
            "src/plan/a.cc": '#include <fmt/format.h>\n#include "core/b.h"',
            "src/cpu/a.cc": '#include <hwy/highway.h>\n#include "plan/backend.h"',
            "src/api/a.cc": '#include "leapquant/leapquant.h"\n#include "pool/pool.h"',
            "src/judge/a.cc": '#include "leapquant/leapquant.hpp"\n#include "ref/flush.h"',
            "cli/a.cc": '#include "command.h"\n#include "bench/limits.h"\n#include <CLI/CLI.hpp>',
            "src/core/b.cc": '// #include "cpu/a.h"\n/* a <<<b>>> in\n a <<<comment>>> */ const char* s = "<<<";',
            "src/cuda/flush/launch.cu": "kernel<<<1, 1>>>();",
            "bench/cuda/launch.cu": "#include <cuda_runtime_api.h>\nkernel<<<1, 1>>>();",
            "tests/cpu/a.cc": '#include "cpu/cpu_backend.h"',
        }
        for name, text in cases.items():
            with self.subTest(name):
                self.assertEqual(self.breaches(name, text), [])


if __name__ == "__main__":
    unittest.main()
