# SPDX-License-Identifier: Apache-2.0
"""`python -m leapquant`: the program of this package, which takes this process's place."""

import os
import sys
from pathlib import Path


def main():
    package = Path(__file__).parent
    os.environ.setdefault("LQ_DATA_DIR", str(package / "data"))
    os.execv(package / "bin" / "leapquant", ["leapquant", *sys.argv[1:]])


if __name__ == "__main__":
    main()
