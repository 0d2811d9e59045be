# SPDX-License-Identifier: Apache-2.0
"""Write the tables of docs/performance.md from the records in bench/results.

A record NAME.json fills the lines between `<!-- table NAME -->` and `<!-- end -->`. With --check, only compare.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "performance.md"
RESULTS = ROOT / "bench" / "results"
BLOCK = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def percent(fraction):
    return f"{100 * fraction:.0f} %"


def limits_line(limits):
    parts = [
        f"{entry['threads']} thread(s) {entry['multiply_adds_per_s'] / 1e9:.0f} G multiply-adds/s, "
        f"{entry['memory_bytes_per_s'] / 1e9:.0f} GB/s"
        for entry in limits["by_threads"]
    ]
    return "; ".join(parts)


def memory_cell(result):
    if not result["due_programs"]:
        return "-"
    return percent(result["memory_fraction"]) if result["memory_fraction"] else "in cache"


def row(result, reference):
    per_program = result["median_us"] / result["due_programs"] if result["due_programs"] else None
    cells = [
        str(result["batch"]),
        str(result["threads"]),
        result["layout"],
        result["due"],
        f"{reference / per_program:.0f}x" if per_program else "-",
        percent(result["multiply_add_fraction"]) if per_program else "-",
        memory_cell(result),
    ]
    return "| " + " | ".join(cells) + " |"


def table(record):
    lines = [
        f"{record['device']}, {record['target']}, commit {record['commit']}; limits in the same run: "
        f"{limits_line(record['limits'])}.",
        "",
        "| batch | threads | layout | due | scalar reference / library | of the multiply-adds | of the bytes |",
        "|---|---|---|---|---|---|---|",
    ]
    reference = record["limits"]["reference_us_per_program"]
    lines += [row(result, reference) for result in record["results"]]
    return "\n".join(lines) + "\n"


def filled(text):
    def replace(match):
        record = json.loads((RESULTS / f"{match['name']}.json").read_text())
        return f"{match[1]}{table(record)}{match[3]}"

    return BLOCK.sub(replace, text)


def main():
    text = DOCUMENT.read_text()
    if "--check" in sys.argv[1:]:
        if filled(text) != text:
            sys.exit("docs/performance.md is not what bench/results says: run tools/write_tables.py")
        return
    DOCUMENT.write_text(filled(text))


if __name__ == "__main__":
    main()
