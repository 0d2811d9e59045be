# SPDX-License-Identifier: Apache-2.0
"""Draw the record of `leapquant drift --json RECORD`: tools/plot_drift.py RECORD FIGURE

Needs tools/requirements-plot.txt. The figure is an SVG without date and random identifiers, so that the same record
gives the same bytes.
"""

import json
import pathlib
import sys

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "drift"
matplotlib.rcParams["svg.fonttype"] = "none"

import matplotlib.pyplot as plt  # noqa: E402

STYLES = {
    "leapquant": {"color": "#0b5fa5", "linewidth": 2.0},
    "fp32": {"color": "#777777", "linestyle": ":"},
    "bf16": {"color": "#d98200", "linestyle": "--"},
    "fp16": {"color": "#2a8a3e", "linestyle": "-."},
    "int8": {"color": "#b3261e"},
}
ROWS = (("state_error", "error of the state"), ("output_error", "error of the outputs"))


def draw(record: dict) -> plt.Figure:
    profiles = record["profiles"]
    figure, axes = plt.subplots(
        len(ROWS), len(profiles), figsize=(2.3 * len(profiles), 5.2), sharex=True, sharey="row", layout="constrained"
    )
    for row, (key, label) in zip(axes, ROWS, strict=True):
        row[0].set_ylabel(label)
        for axis, profile in zip(row, profiles, strict=True):
            for state in profile["states"]:
                name = f"{state['state']}, {state['bytes_per_head']:,} B"
                axis.plot(record["positions"], state[key], label=name, **STYLES[state["state"]])
            axis.set_yscale("log")
            axis.minorticks_off()
            axis.grid(alpha=0.3)
    for axis, profile in zip(axes[0], profiles, strict=True):
        axis.set_title(profile["name"])
    for axis in axes[-1]:
        axis.set_xlabel("tokens")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return figure


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    record = json.loads(pathlib.Path(sys.argv[1]).read_text())
    draw(record).savefig(sys.argv[2], format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
