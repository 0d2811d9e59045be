#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cuts the examples out of a Markdown file: its one block of each language becomes example.<suffix>."""

import argparse
import re
import sys
from pathlib import Path

SUFFIXES = {"c": "c", "cpp": "cc"}


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("document", type=Path)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()

    text = arguments.document.read_text(encoding="utf-8")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for language, suffix in SUFFIXES.items():
        found = blocks(text, language)
        if len(found) != 1:
            sys.exit(f"{arguments.document}: expected one block of {language}, found {len(found)}")
        (arguments.folder / f"example.{suffix}").write_text(found[0], encoding="utf-8")


if __name__ == "__main__":
    main()
