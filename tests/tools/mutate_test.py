# SPDX-License-Identifier: Apache-2.0
"""Every fault of tools/mutate.py still finds its place in the sources."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import mutate


class Mutate(unittest.TestCase):
    def test_every_fault_can_be_planted(self):
        for mutation in mutate.MUTATIONS:
            with self.subTest(mutation.name):
                text = (mutate.ROOT / mutation.file).read_text(encoding="utf-8")
                try:
                    self.assertNotEqual(mutate.planted(mutation, text), text)
                except SystemExit as outdated:
                    self.fail(str(outdated))


if __name__ == "__main__":
    unittest.main()
