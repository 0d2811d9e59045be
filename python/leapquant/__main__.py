# SPDX-License-Identifier: Apache-2.0
"""`python -m leapquant`: the program of this package, which takes this process's place."""

import os
import sys
from pathlib import Path


def main():
    program = Path(__file__).parent / "bin" / "leapquant"
    os.execv(program, ["leapquant", *sys.argv[1:]])


if __name__ == "__main__":
    main()
