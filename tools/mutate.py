# SPDX-License-Identifier: Apache-2.0
"""Plant faults in flush and step, one at a time, and see that the tests fail on each.

Works on a copy of the tracked sources in build/mutation, so that the tree stays as it is. Exits 1 when a fault
survives. Words on the command line choose the faults whose names hold one of them.
"""

import pathlib
import shutil
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "mutation" / "source"
BUILD = ROOT / "build" / "mutation" / "build"
TESTS = ("core", "conformance")

KERNEL = "src/cpu/flush_kernel-inl.h"
LANES = "src/cpu/lanes16-inl.h"
BACKEND = "src/cpu/cpu_backend.cc"
HOST = "src/plan/host_backend.cc"
POOL = "src/pool/pool.cc"
STEP = "src/cpu/step_kernel-inl.h"
MATH = "src/cpu/math16-inl.h"
HOST_STEP = "src/plan/host_step.cc"
HOST_SLOTS = "src/plan/host_slots.cc"
HOST_STATE = "src/plan/host_state.cc"
HOST_DRAFT = "src/plan/host_draft.cc"
COMMIT = "src/plan/host_draft.h"
STATE = "src/cpu/state_kernel-inl.h"
STEP_RANGE = "src/cpu/step_range.cc"
WEIGHT = "src/core/append_weight.h"
TOKEN = "src/core/token_view.h"
VALIDATE_STEP = "src/api/validate_step.cc"
PROGRAM_CHECK = "src/api/program_check.cc"

ROUNDED = "const Vector rounded = hn::MulAdd(smoothed.part[i], hn::Set(df, scale), hn::Set(df, kRounder));"
CODE = "const auto code = hn::Sub(hn::BitCast(di, rounded), hn::Set(di, kRounderBits));"
SCALED = "hn::Mul(smoothed.part[i], hn::Set(df, scale))"


ENTRY = "if (weight != 0.0f) add_entry<kGate>(run, j, weight, workspace, terms);"
BETA = "1.0f / (1.0f + std::exp(-to_float(*p.token.beta_input)))"


class Mutation(NamedTuple):
    name: str
    file: str
    replacements: tuple[tuple[str, str], ...]


MUTATIONS = (
    Mutation(
        "codes rounded towards zero",
        KERNEL,
        ((ROUNDED, ""), (CODE, f"const auto code = hn::ConvertTo(di, {SCALED});")),
    ),
    Mutation(
        "ties rounded away from zero",
        KERNEL,
        (
            (ROUNDED, f"const Vector x = {SCALED};"),
            (CODE, "const auto code = hn::ConvertTo(di, hn::Add(x, hn::CopySign(hn::Set(df, 0.5f), x)));"),
        ),
    ),
    Mutation("codes not clamped", KERNEL, (("hn::Max(code, hn::Set(di, -127))", "code"),)),
    Mutation(
        "scale axes swapped",
        KERNEL,
        (("set16(source.value_scale[v + row])", "set16(source.key_scale[v + row])"),),
    ),
    Mutation(
        "decay by the last entry's gate lost",
        KERNEL,
        (
            (
                "entry_decay = mul16(entry_decay, load16(window.window_gate + j * kKeyDim + k));",
                "if (j + 1 < kWindow) entry_decay = mul16(entry_decay, load16(window.window_gate + j * kKeyDim + k));",
            ),
        ),
    ),
    Mutation("checkpoint not decayed", KERNEL, (("exp16(load16(window.log_decay + k))", "set16(1.0f)"),)),
    Mutation(
        "factors of a pool swapped",
        POOL,
        (("checkpoint.value_factor.base += geometry_.key_dim", "checkpoint.key_factor.base += geometry_.key_dim"),),
    ),
    Mutation("factors not saturated", LANES, (("hn::IfThenElse(beyond, hn::CopySign(limit, value.part[i]), ", "("),)),
    Mutation(
        "gates not reset", HOST, (("std::fill_n(window.window_gate,", "if (false) std::fill_n(window.window_gate,"),)
    ),
    Mutation(
        "counter written",
        BACKEND,
        (
            (
                "finish_flush(plan, due, finite);",
                "finish_flush(plan, due, finite);\nif (plan.in_place) *plan.due.fill_count.at(due.item, due.head) = 0;",
            ),
        ),
    ),
    Mutation(
        "window of the next head",
        BACKEND,
        (
            (
                "plan.window.at(due.item, due.head)",
                "plan.window.at(due.item, (due.head + 1) % plan.geometry.num_heads)",
            ),
        ),
    ),
    Mutation("slot 0 flushed", HOST, (("if (slot <= 0)", "if (slot < 0)"),)),
    Mutation("index beyond the pool not noticed", HOST, (("slot >= plan.due.num_slots", "slot > plan.due.num_slots"),)),
    Mutation("scale floor missing", KERNEL, (("hn::IfThenElse(hn::Lt(root, floor), floor, root)", "root"),)),
    Mutation(
        "dependent columns kept",
        KERNEL,
        (("set16(dependent ? 0.0f : 1.0f / norm)", "set16(1.0f / std::max(norm, 1e-30f))"),),
    ),
    Mutation(
        "weight-0 entries multiplied",
        KERNEL,
        (
            ("window.window_weight[j] != 0.0f", "true"),
            ("weight != 0.0f", "true"),
            ("if (window.window_weight[j] == 0.0f) continue;", ""),
        ),
    ),
    Mutation(
        "step: the token's own gate not applied to entries",
        STEP,
        (("store16(decay, workspace.entry_decay + k);", "store16(set16(1.0f), workspace.entry_decay + k);"),),
    ),
    Mutation(
        "step: an entry decays by its own gate",
        STEP,
        (
            (ENTRY, ""),
            (
                "store16(mul16(load16(workspace.entry_decay + k), gate), workspace.entry_decay + k);\n      }\n    }",
                "store16(mul16(load16(workspace.entry_decay + k), gate), workspace.entry_decay + k);\n      }\n    }\n"
                + ENTRY,
            ),
        ),
    ),
    Mutation("step: weights ignored", STEP, (("weight * sum16(sum[s])", "sum16(sum[s])"),)),
    Mutation("step: weight-0 entries multiplied", STEP, (("if (weight != 0.0f) add", "add"),)),
    Mutation(
        "step: the checkpoint decays by the old log-decay",
        STEP,
        (("exp16(log_decay);", "exp16(load16(p.log_decay + k));"),),
    ),
    Mutation("step: the output lacks the new entry", STEP, (("mul_add16(key_query, update, sum[1])", "sum[1]"),)),
    Mutation("step: query not scaled", STEP, (("1.0f / std::sqrt(static_cast<float>(kKeyDim))", "1.0f"),)),
    Mutation("step: no floor under norms", STEP, (("float floor = kNormFloor;", "float floor = 0.0f;"),)),
    Mutation("step: loud inputs overflow", STEP, (("loudness.largest > kLoudInput", "false"),)),
    Mutation("step: beta not rounded", STEP, (("to_float(beta_of(*p.token.beta_input))", BETA),)),
    Mutation(
        "step: NaN updates go unreported",
        STEP,
        (("trouble == 0.0f", "trouble != 1.0f"),),
    ),
    Mutation("step: bf16 truncated", LANES, (("hn::ShiftRight<16>(hn::Add(bits, half_step))", "upper"),)),
    Mutation("step: softplus without its linear part", MATH, (("kSoftplusLinear", "200.0f"),)),
    Mutation("step: sigmoid of the wrong sign", MATH, (("exp_any(hn::Neg(v))", "exp_any(v)"),)),
    Mutation("step: counter not advanced", HOST_STEP, (("program.entries + 1);", "program.entries);"),)),
    Mutation(
        "step: an unflushed window is dropped", HOST_STEP, (("return ErrorKind::kUnflushed;", "return int64_t{0};"),)
    ),
    Mutation("step: a flushed window is refused", HOST_STEP, (("if (newest_weight == 0.0f) return int64_t{0};", ""),)),
    Mutation("step: a counter of 17 steps", HOST_STEP, (("count > geometry.window)", "count > geometry.window + 1)"),)),
    Mutation(
        "step: zero rows left out",
        HOST_STEP,
        (("std::fill_n(output,", "if (false) std::fill_n(output,"),),
    ),
    Mutation("step: slot 0 steps", HOST_STEP, (("if (slot <= 0)", "if (slot < 0)"),)),
    Mutation(
        "step: index beyond the pool not noticed",
        HOST_STEP,
        (("slot >= pool.num_slots", "slot > pool.num_slots"),),
    ),
    Mutation("slots: a flushed window is quantized again", HOST, (("return !flushed;", "return true;"),)),
    Mutation("slots: a flush of any fill keeps the counter", HOST, (("if (plan.any_fill) *plan", "if (false) *plan"),)),
    Mutation(
        "slots: a reset keeps the counter",
        HOST_SLOTS,
        (("fill_count.at(slot, head) = 0;", "fill_count.at(slot, head);"),),
    ),
    Mutation(
        "slots: a copy leaves the window behind",
        HOST_SLOTS,
        (("copy_window(geometry, plan.window.at(source, head), plan.window.at(target, head));", ""),),
    ),
    Mutation("step: weight of the new entry missing", WEIGHT, (("window.window_weight[entries] = 1.0f;", ""),)),
    Mutation(
        "step: key and query of a packed row swapped",
        VALIDATE_STEP,
        (("view.query = {row,", "view.query = {row + key_row,"), ("view.key = {row + key_row,", "view.key = {row,")),
    ),
    Mutation("step, state: 16 entries accepted", PROGRAM_CHECK, (("count <= most", "count <= most + 1"),)),
    Mutation(
        "step: output may lie over the token",
        VALIDATE_STEP,
        (('LQ_RETURN_IF_ERROR(check_disjoint(written, "", input, ""));', ""),),
    ),
    Mutation("state: rows and columns swapped", STATE, (("from + k * kValueDim + v)", "from + v * kKeyDim + k)"),)),
    Mutation(
        "state: an import starts from another basis",
        STATE,
        (("<kRank>(workspace.start, workspace)", "<kRank>(workspace.state, workspace)"),),
    ),
    Mutation("state: the offset is lost", HOST_STATE, (("plan.first_entry.base == nullptr ? 0", "true ? 0"),)),
    Mutation(
        "state: the last tenant's rows stay",
        HOST,
        (("std::fill_n(window.window_key,", "if (false) std::fill_n(window.window_key,"),),
    ),
    Mutation("state: an import is not reported", HOST_STATE, (("if (!finite)", "if (false)"),)),
    Mutation("state: a counter of 17 is exported", HOST_STATE, (("plan.geometry.window) return", "17) return"),)),
    Mutation("state: nothing is given for padding", HOST_STATE, (("std::memset(", "if (false) std::memset("),)),
    Mutation("draft: tokens do not see one another", STEP_RANGE, (("++program.drafted.count;", ""),)),
    Mutation(
        "draft: the gates of earlier tokens are lost",
        STEP_RANGE,
        (("program.log_decay = program.rows.log_decay;", ""),),
    ),
    Mutation(
        "draft: no flush at the window's end",
        COMMIT,
        (("flush(commit->program);", "if (false) flush(commit->program);"),),
    ),
    Mutation("draft: the rest goes into the full window", COMMIT, (("entries = 0;", ""),)),
    Mutation("draft: log-decay not counted", HOST_DRAFT, (("+= log_gate[k];", "+= 0.0f * log_gate[k];"),)),
    Mutation(
        "draft: an index beyond the pool only reported with tokens",
        HOST_DRAFT,
        ((" && slot < plan.flush.due.num_slots", ""),),
    ),
    Mutation("draft: committed twice", HOST_DRAFT, ((" || header.entries != occupied.entries()", ""),)),
    Mutation(
        "draft: weights missing", HOST_DRAFT, (("append_weight(geometry.gate, window, entries, token_decay);", ""),)
    ),
    Mutation("draft: rejected tokens are reported", HOST_DRAFT, (("(1u << accepted) - 1", "0xFFu"),)),
    Mutation("gdn: weights do not decay", WEIGHT, (("window.window_weight[j] *= token_decay;", ""),)),
    Mutation("gdn: the newest entry does not decay", WEIGHT, (("j < entries;", "j + 1 < entries;"),)),
    Mutation("gdn: the checkpoint's decay stays", WEIGHT, (("*window.decay *= token_decay;", ""),)),
    Mutation("gdn: entries as they were before the token", STEP, (("run.weight[j] * decays.token", "run.weight[j]"),)),
    Mutation("gdn: the checkpoint as it was before the token", STEP, (("*p.decay * token_decay", "*p.decay"),)),
    Mutation("gdn: factors do not decay", STEP, (("decays.checkpoint * sum16(sum[s])", "sum16(sum[s])"),)),
    Mutation("gdn: codes do not decay", STEP, (("set16(decays.checkpoint)", "set16(1.0f)"),)),
    Mutation("gdn: the gate in single precision", STEP, (("log_gate_of<double>", "log_gate_of<float>"),)),
    Mutation("gdn: every head takes the first key", TOKEN, (("head / group_size;", "group_size == 1 ? head : 0;"),)),
    Mutation("gdn: decay of a functional step lost", HOST_STEP, (("*to.decay = *from.decay;", "*to.decay = 1.0f;"),)),
    Mutation(
        "gdn: a draft's weights stay",
        STEP_RANGE,
        (("program.window.weight = draft.weight;", ""),),
    ),
    Mutation("gdn: a draft's decay stays", STEP_RANGE, (("program.decay = draft.decay;", ""),)),
    Mutation(
        "gdn: drafted tokens keep their weight",
        STEP_RANGE,
        (("program.drafted.weight = draft.weight + live.entries;", ""),),
    ),
    Mutation("gdn: a flush leaves the decay", HOST, (("*window.decay = 1.0f;", ""),)),
    Mutation("draft: one token too many", COMMIT, (("t < commit->accepted", "t <= commit->accepted"),)),
)


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def build() -> bool:
    return run("cmake", "--build", str(BUILD), "--target", *TESTS, "leapquant").returncode == 0


def failing_test() -> str | None:
    """The first test that fails, or None."""
    for test in TESTS:
        done = run(str(BUILD / "tests" / test / test), "--gtest_fail_fast", "--gtest_brief=1")
        if done.returncode != 0:
            failed = [line for line in done.stdout.splitlines() if line.startswith("[  FAILED  ]")]
            return failed[0].split("]", 1)[1].strip() if failed else f"{test}: exit {done.returncode}"
    return None


def copy_sources() -> None:
    shutil.rmtree(COPY, ignore_errors=True)
    for name in run("git", "-C", str(ROOT), "ls-files").stdout.splitlines():
        target = COPY / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # With a new date: an interrupted run may have left objects of a fault behind.
        shutil.copy(ROOT / name, target)


def planted(mutation: Mutation, text: str) -> str:
    """The mutation's file with its fault."""
    for old, new in mutation.replacements:
        if old not in text:
            sys.exit(f"{mutation.name}: {mutation.file} no longer contains: {old}")
        text = text.replace(old, new)
    return text


def survives(mutation: Mutation) -> bool:
    path = COPY / mutation.file
    original = path.read_text()
    path.write_text(planted(mutation, original))
    try:
        if not build():
            sys.exit(f"{mutation.name}: does not compile")
        failure = failing_test()
    finally:
        path.write_text(original)
    print(f"{'SURVIVES' if failure is None else 'caught  '}  {mutation.name:<40} {failure or ''}", flush=True)
    return failure is None


def main() -> int:
    chosen = [mutation for mutation in MUTATIONS if not sys.argv[1:] or any(w in mutation.name for w in sys.argv[1:])]
    copy_sources()
    # No fault is in the CUDA backend, and its images take minutes.
    options = ("-DCMAKE_BUILD_TYPE=Release", "-DLQ_CUDA=OFF")
    configured = run("cmake", "-S", str(COPY), "-B", str(BUILD), "-G", "Ninja", *options)
    if configured.returncode != 0 or not build():
        sys.exit("the unchanged copy does not build")
    if (failure := failing_test()) is not None:
        sys.exit(f"the unchanged copy fails: {failure}")
    survivors = sum(survives(mutation) for mutation in chosen)
    print(f"{len(chosen) - survivors} of {len(chosen)} faults caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
