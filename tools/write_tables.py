# SPDX-License-Identifier: Apache-2.0
"""Write the tables of the documents from the records in bench/results.

A record NAME.json fills the lines between `<!-- table NAME -->` and `<!-- end -->` of the documents; a block whose
record does not exist yet is left alone. With --check, only compare. TABLES says how a record becomes a table.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = (
    "docs/performance.md",
    "docs/performance-cuda.md",
    "docs/performance-cuda-step.md",
    "docs/drift.md",
    "docs/python.md",
    "examples/tiny_lm/README.md",
)
RESULTS = ROOT / "bench" / "results"
BLOCK = re.compile(r"(<!-- table (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def percent(fraction, digits=0):
    return f"{100 * fraction:.{digits}f} %"


def line(cells):
    return "| " + " | ".join(cells) + " |"


def table(titles, rows):
    return [line(titles), "|" + "---|" * len(titles), *map(line, rows)]


# ---- CPU -------------------------------------------------------------------------------------------------------------


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


def cpu_row(result, reference):
    per_program = result["median_us"] / result["due_programs"] if result["due_programs"] else None
    return [
        str(result["batch"]),
        str(result["threads"]),
        result["layout"],
        result["due"],
        f"{reference / per_program:.0f}x" if per_program else "-",
        percent(result["multiply_add_fraction"]) if per_program else "-",
        memory_cell(result),
    ]


def cpu_table(record):
    reference = record["limits"]["reference_us_per_program"]
    titles = ["batch", "threads", "layout", "due", "scalar reference / library", "of the multiply-adds", "of the bytes"]
    return [
        f"{record['device']}, {record['target']}, commit {record['commit']}; limits in the same run: "
        f"{limits_line(record['limits'])}.",
        "",
        *table(titles, [cpu_row(result, reference) for result in record["results"]]),
    ]


def read_limits_line(limits):
    return "; ".join(
        f"{entry['threads']} thread(s) {entry['read_bytes_per_s'] / 1e9:.0f} GB/s read, "
        f"{entry['memory_bytes_per_s'] / 1e9:.0f} GB/s read and written"
        for entry in limits["by_threads"]
    )


def decode_row(result):
    return [
        str(result["batch"]),
        str(result["threads"]),
        f"{result['pool_bytes'] / 1e6:.0f} MB",
        f"{result['bytes'] / result['median_us'] / 1e3:.0f} GB/s",
        percent(result["fraction_of_read_limit"]),
        f"{result['fp32_bytes'] / result['fp32_median_us'] / 1e3:.0f} GB/s",
        f"{result['speedup']:.2f}x",
    ]


def decode_table(record):
    titles = ["batch", "threads", "pool", "moved", "of the read limit", "fp32 states: moved", "fp32 states / leapquant"]
    return [
        f"{record['device']}, {record['target']}, commit {record['commit']}; limits in the same run: "
        f"{read_limits_line(record['limits'])}.",
        "",
        *table(titles, [decode_row(result) for result in record["results"]]),
    ]


# ---- drift -----------------------------------------------------------------------------------------------------------


def mean_between(values, begin, end):
    part = values[int(begin * len(values)) : int(end * len(values))]
    return sum(part) / len(part)


def drift_row(profile, state):
    early_late = [
        f"{mean_between(state[key], begin, end):.1e}"
        for key in ("state_error", "output_error")
        for begin, end in ((0.125, 0.25), (0.875, 1))
    ]
    return [profile["name"], state["state"], *early_late]


def drift_table(record):
    titles = ["tokens", "state", "state error, early", "late", "output error, early", "late"]
    rows = [drift_row(profile, state) for profile in record["profiles"] for state in profile["states"]]
    return [
        f"{record['tokens']} tokens, backend {record['backend']} ({record['target']}), commit {record['commit']}.",
        "",
        *table(titles, rows),
    ]


# ---- CUDA ------------------------------------------------------------------------------------------------------------


def cuda_line(record, what):
    gpu = record["gpu"]
    return (
        f"{record['device']}, {record['target']}, commit {record['commit']}, {record['date'][:10]}; "
        f"driver {gpu['driver']}, CUDA {gpu['cuda_runtime']}, "
        f"peak clocks {gpu['sm_clock_mhz']} and {gpu['memory_clock_mhz']} MHz (memory). {what} `{record['command']}`"
    )


def only(results, key):
    """The value that all results share: a table without a column for it must not mix several."""
    values = {result[key] for result in results}
    if len(values) != 1:
        sys.exit(f"a table by batch needs one value of '{key}', the record has {sorted(values)}")
    return values.pop()


def microseconds(result):
    return f"{result['median_us']:.1f}" if result else "-"


def batch_row(batch, by_due):
    all_due, few, none = (by_due.get(due) for due in ("all", "1/16", "none"))
    return [
        str(batch),
        f"{all_due['stream_us']:.1f}" if all_due else "-",
        microseconds(all_due),
        percent(all_due["fraction_of_limit"], 1) if all_due else "-",
        microseconds(few),
        f"{few['median_us'] / (all_due['median_us'] / 16):.2f}" if few and all_due else "-",
        microseconds(none),
    ]


def cuda_table(record):
    """One row a batch, for one geometry and layout."""
    results = record["results"]
    heads, rank, layout = (only(results, key) for key in ("heads", "rank", "layout"))
    batches = {}
    for result in results:
        batches.setdefault(result["batch"], {})[result["due"]] = result
    titles = ["batch", "stream, us", "all due, us", "of the stream"]
    titles += ["1/16 due, us", "x of all due / 16", "none due, us"]
    return [
        cuda_line(record, f"{heads} heads, rank {rank}, {layout} layout."),
        "",
        *table(titles, [batch_row(batch, by_due) for batch, by_due in batches.items()]),
    ]


def is_published(result):
    return (result["heads"], result["rank"], result["layout"]) == (32, 4, "compact")


def per_program(result):
    return result["median_us"] / result["due_programs"]


def geometry_row(result, published):
    return [
        str(result["heads"]),
        str(result["batch"]),
        str(result["rank"]),
        result["layout"],
        f"{result['stream_us']:.1f}",
        microseconds(result),
        percent(result["fraction_of_limit"], 1),
        f"{1e3 * per_program(result):.1f}",
        f"{per_program(result) / per_program(published):.3f}" if published else "-",
    ]


def geometries_table(record):
    """One row a case, all due; the last column against 32 heads, rank 4, compact."""
    results = [result for result in record["results"] if result["due"] == "all"]
    published = next(filter(is_published, results), None)
    titles = ["heads", "batch", "rank", "layout", "stream, us", "all due, us", "of the stream", "ns a program"]
    titles += ["x of 32 heads, rank 4, compact"]
    return [
        cuda_line(record, "All due."),
        "",
        *table(titles, [geometry_row(result, published) for result in results]),
    ]


# ---- Python ----------------------------------------------------------------------------------------------------------


def python_row(result):
    times = [f"{result[name]:.1f}" for name in ("eager", "compiled", "run", "flush_inplace")]
    speed_ups = [f"{result[name] / result['run']:.1f}x" for name in ("eager", "compiled")]
    host = [f"{result[name]:.1f}" for name in ("host", "host_unlaunched", "host_torch_add") if name in result]
    return [str(result["batch"]), *times, *speed_ups, *host, f"{result['strict_use']:.4f}"]


def judge_row(gate, family, results):
    largest = [max(result[name] for result in results) for name in ("strict_ratio", "strict_use", "averaged_use")]
    programs = sum(result["batch"] * result["heads"] for result in results)
    return [gate, family, str(len(results)), str(programs), *(f"{value:.4f}" for value in largest)]


def judge_table(record):
    """One row a gate and family, over the published batches on the GPU; the largest of each figure."""
    published = [r for r in record["results"] if r["library"] == "torch-cuda" and r["batch"] >= 16]
    groups = {}
    for result in published:
        # Records from before there were two gates name none.
        groups.setdefault((result.get("gate", "kda"), result["family"]), []).append(result)
    rows = [judge_row(*group, results) for group, results in groups.items()]
    titles = [
        "gate",
        "family",
        "batches",
        "programs",
        "err / err_ref, at most 1.01",
        "of the bound",
        "averaged: of the bound",
    ]
    where = f"{record['device']}, PyTorch {record['torch']}, commit {record['commit']}, {record['date'][:10]}."
    return [where, "", *table(titles, rows)]


def python_table(record):
    titles = ["batch", "eager, us", "compiled, us", "`run`, us", "`flush_inplace`, us"]
    titles += ["eager / `run`", "compiled / `run`"]
    titles += ["host, us", "nothing launched, us", "`add_`, us"] if record["cuda"] else []
    titles += ["of the bound"]
    return [
        f"{record['device']}, {record['threads']} thread(s), PyTorch {record['torch']}, commit {record['commit']}, "
        f"{record['date'][:10]}; {record['heads']} heads, rank {record['rank']}, padded layout, "
        f"{record['family']} family. `{record['command']}`",
        "",
        *table(titles, [python_row(result) for result in record["results"]]),
    ]


def tiny_lm_row(result):
    return [
        result["states"],
        f"{result['bits_per_byte']:.4f}",
        f"{result['kl']:.5f}",
        f"{result['bytes']:,}",
        f"{result['tokens_per_s']:.0f}",
    ]


def tiny_lm_table(record):
    return [
        f"{record['device']}, {record['threads']} thread(s), {record['arrays']}, commit {record['commit']}, "
        f"{record['date'][:10]}; {record['sequences']} sequences of {record['bytes_a_sequence']} bytes. "
        f"`{record['command']}`",
        "",
        *table(
            ["states", "bits/byte", "KL, nats/byte", "bytes a sequence", "tokens/s"],
            [tiny_lm_row(result) for result in record["results"]],
        ),
    ]


# ---- step ------------------------------------------------------------------------------------------------------------


def step_row(batch, by_op):
    step, cycle = (by_op.get(op) for op in ("step", "cycle"))
    limit = cycle and cycle["step_stream_us"] + cycle["flush_stream_us"]
    return [
        str(batch),
        f"{step['step_stream_us']:.1f}" if step else "-",
        microseconds(step),
        percent(step["fraction_of_limit"], 1) if step else "-",
        f"{limit:.1f}" if cycle else "-",
        microseconds(cycle),
        percent(cycle["fraction_of_limit"], 1) if cycle else "-",
    ]


def step_table(record):
    """One row a batch, for one geometry and layout."""
    results = record["results"]
    heads, rank, layout = (only(results, key) for key in ("heads", "rank", "layout"))
    batches = {}
    for result in results:
        batches.setdefault(result["batch"], {})[result["op"]] = result
    titles = ["batch", "stream, us", "step, us", "of the stream"]
    titles += ["streams of a token, us", "token of the cycle, us", "of the streams"]
    return [
        cuda_line(record, f"{heads} heads, rank {rank}, {layout} layout."),
        "",
        *table(titles, [step_row(batch, by_op) for batch, by_op in batches.items()]),
    ]


TABLES = {
    "cpu-kda-flush": cpu_table,
    "cpu-kda-step": decode_table,
    "cpu-gdn-step": decode_table,
    "drift": drift_table,
    "cuda-kda-flush": cuda_table,
    "cuda-kda-flush-geometries": geometries_table,
    "cuda-gdn-flush": cuda_table,
    "python-compare-cpu": python_table,
    "python-compare-cuda": python_table,
    "python-judge-cuda": judge_table,
    "cuda-kda-step": step_table,
    "cuda-gdn-step": step_table,
    "tiny-lm": tiny_lm_table,
    "tiny-lm-cuda": tiny_lm_table,
}


def filled(text, results=RESULTS):
    """A document with its tables written anew."""

    def replace(match):
        name = match["name"]
        if name not in TABLES:
            sys.exit(f"no table '{name}'; there are: {', '.join(TABLES)}")
        record = results / f"{name}.json"
        if not record.exists():
            return match[0]
        lines = TABLES[name](json.loads(record.read_text()))
        return match[1] + "\n".join(lines) + "\n" + match[3]

    return BLOCK.sub(replace, text)


def main():
    old = []
    for name in DOCUMENTS:
        document = ROOT / name
        text = document.read_text()
        if filled(text) == text:
            continue
        old.append(name)
        if "--check" not in sys.argv[1:]:
            document.write_text(filled(text))
    if old and "--check" in sys.argv[1:]:
        sys.exit(f"not what bench/results says, run tools/write_tables.py: {', '.join(old)}")


if __name__ == "__main__":
    main()
