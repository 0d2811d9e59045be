# SPDX-License-Identifier: Apache-2.0
"""Tokens that are stepped ahead, and the appending of those that are accepted."""

import numpy as np
import pytest
from conftest import make_library, need_torch
from families import WINDOW, partly_filled
from gates import KDA
from leapquant import kda
from leapquant._arrays import torch
from slots import filled, indices, own_bits

SLOTS, HEADS, DIM, TOKENS = 5, 9, 128, 3
ROWS = ("mixed", "a", "b")


def draw(library, gate, room):
    """Windows with room for some entries, and the layer's weights."""
    inputs = gate.draw(library, SLOTS - 1, HEADS, 4)
    h = library.xp.clip(partly_filled(library, inputs)["h"], 0, WINDOW - room)
    live = library.from_numpy(np.arange(WINDOW, dtype=np.int32)) < h[..., None]
    if gate is KDA:
        inputs["gbuf"] = library.xp.where(live[..., None], inputs["gbuf"], library.xp.ones_like(inputs["gbuf"]))
    kbuf = library.cast(library.normal(SLOTS - 1, HEADS, WINDOW, DIM) * 0.1, "bfloat16")
    channels = (DIM,) if gate is KDA else ()
    weights = {
        "A_log": library.xp.log(library.uniform(0.5, 2, HEADS)),
        "dt_bias": 0.5 * library.normal(HEADS, *channels) - 1,
    }
    return {**inputs, "h": h, "w": inputs["w"] * live, "kbuf": kbuf}, weights


class Case:
    """Pools of the same content, a draft for their slots, and where it goes."""

    def __init__(self, library, gate=KDA, tokens=TOKENS):
        self.library, self.gate, self.tokens = library, gate, tokens
        self.inputs, self.weights = draw(library, gate, room=tokens)
        self.pool = self.filled()
        self.idx = self.indices(1, 2, 3, 4)
        self.q0 = self.inputs["q0"]
        self.rows = {name: self.drawn(*shape) for name, shape in self.shapes().items()}
        self.o = self.drawn(SLOTS - 1, tokens, HEADS, DIM)
        self.scratch = gate.op.draft_scratch(self.pool, SLOTS - 1, tokens)

    def shapes(self):
        front = (SLOTS - 1, self.tokens)
        channels = self.weights["dt_bias"].shape
        return {"mixed": (*front, 3 * HEADS * DIM), "a": (*front, *channels), "b": (*front, HEADS)}

    def drawn(self, *shape):
        return self.library.cast(self.library.normal(*shape), "bfloat16")

    def indices(self, *values):
        return indices(self.library, *values)

    def filled(self):
        return filled(self.gate, self.library, self.inputs)

    def arguments(self, **others):
        return {"idx": self.idx, **self.rows, **self.weights, "o": self.o, "scratch": self.scratch, **others}

    def draft(self, **options):
        assert self.gate.op.draft(self.pool, **self.arguments(), **options) is None

    def commit(self, *accepted):
        self.gate.op.commit(self.pool, self.idx, self.tokens, self.scratch, self.indices(*accepted), self.q0)

    def stepped(self, pool, idx, token, **options):
        """The output of a single step with a row of the draft."""
        rows = [self.rows[name][:, token] for name in ROWS]
        o = self.drawn(SLOTS - 1, HEADS, DIM)
        self.gate.op.step_flush_inplace(pool, idx, *rows, *self.weights.values(), o, self.q0, **options)
        return o

    def bits(self, array):
        return self.library.bits(array)


@pytest.mark.parametrize("tokens", [1, 3, 8])
@pytest.mark.parametrize("lower_bound", [None, -5.0])
def test_accepted_drafts_are_single_steps(gate, library, tokens, lower_bound):
    case = Case(library, gate, tokens)
    before = own_bits(library, case.pool)
    case.draft(lower_bound=lower_bound)
    assert own_bits(library, case.pool) == before
    single = case.filled()
    for token in range(tokens):
        expected = case.stepped(single, case.idx, token, lower_bound=lower_bound)
        assert case.bits(case.o[:, token]) == case.bits(expected)
    case.commit(*[tokens] * 4)
    assert own_bits(library, case.pool) == own_bits(library, single)
    assert case.pool.errors() == {}


def test_each_sequence_accepts_on_its_own(gate, library):
    case = Case(library, gate)
    before = own_bits(library, case.pool)
    case.draft()
    case.commit(0, 0, 0, 0)
    assert own_bits(library, case.pool) == before
    accepted = (2, 0, 3, 1)
    case.commit(*accepted)
    single = case.filled()
    for token in range(TOKENS):
        kept = [slot if token < count else 0 for slot, count in zip((1, 2, 3, 4), accepted, strict=True)]
        case.stepped(single, case.indices(*kept), token)
    assert own_bits(library, case.pool) == own_bits(library, single)


def test_commits_past_the_end_of_a_window_flush_it(gate, library):
    case = Case(library, gate)
    case.pool.hcnt[1:] = WINDOW - 1  # what is empty up to there counts for nothing
    case.draft()
    case.commit(1, 2, 3, 0)
    assert (library.to_numpy(case.pool.hcnt)[1:] == np.array([[WINDOW], [1], [2], [WINDOW - 1]])).all()
    assert (case.pool.w[1] == 0).all() and (case.pool.w[2, :, 1:] == 0).all()
    assert case.pool.errors() == {}


def test_a_draft_is_committed_once(gate, library):
    case = Case(library, gate)
    case.draft()
    case.commit(3, 3, 0, 3)
    after = own_bits(library, case.pool)
    case.commit(1, 0, 0, 1)
    assert own_bits(library, case.pool) == after
    assert case.pool.errors() == {"counter": 0}


def test_rows_without_a_sequence_are_zero(gate, library):
    case = Case(library, gate)
    before = own_bits(library, case.pool)
    case.idx = case.indices(0, -1, 99, 2)
    case.draft()
    assert (case.o[:3] == 0).all() and (case.o[3] != 0).any()
    assert case.pool.errors() == {"index": 2}
    case.commit(3, 3, 3, 0)
    assert own_bits(library, case.pool) == before


def test_rows_may_be_strided(gate, library):
    case = Case(library, gate)
    case.draft()
    expected = case.bits(case.o)
    for name in ROWS:
        wide = library.xp.stack([case.rows[name]] * 2, 2)[:, :, 0]
        case.o[:] = 1
        gate.op.draft(case.pool, **case.arguments(**{name: wide}))
        assert case.bits(case.o) == expected
        wider = library.xp.concatenate([case.rows[name]] * 2, 1)[:, :TOKENS]
        with pytest.raises(ValueError, match=f"tensor '{name}': expected the tokens of all sequences at one stride"):
            gate.op.draft(case.pool, **case.arguments(**{name: wider}))


def test_scratch_may_be_larger_and_is_all_that_a_commit_needs(library):
    case, other = Case(library), Case(library)
    assert tuple(case.scratch.shape) == ((SLOTS - 1) * HEADS * (TOKENS * 1280 + 528),)
    case.scratch = kda.draft_scratch(case.pool, SLOTS + 1, 8)
    other.pool, other.rows, other.weights = case.filled(), case.rows, case.weights
    for each in (case, other):
        each.q0 = case.q0
        each.draft()
    case.rows = {}
    for each in (case, other):
        each.commit(1, 2, 3, 0)
    assert own_bits(library, case.pool) == own_bits(library, other.pool)


@pytest.mark.parametrize("tokens", [0, 9, -1, 2**40])
def test_wrong_numbers_of_tokens_are_refused(library, tokens):
    case = Case(library)
    case.draft()
    with pytest.raises(ValueError, match="tokens: expected 1 to 8, got"):
        kda.draft_scratch(case.pool, 4, tokens)
    with pytest.raises(ValueError, match="tokens: expected 1 to 8, got"):
        kda.commit(case.pool, case.idx, tokens, case.scratch, case.indices(0, 0, 0, 0), case.q0)
    if tokens in (0, 9):
        rows = {name: case.drawn(shape[0], tokens, *shape[2:]) for name, shape in case.shapes().items()}
        with pytest.raises(ValueError, match="tokens: expected 1 to 8, got"):
            kda.draft(case.pool, **case.arguments(**rows, o=case.drawn(SLOTS - 1, tokens, HEADS, DIM)))


def test_scratch_that_cannot_be_is_refused(library):
    pool = Case(library).pool
    for count in (-1, 2**62):
        with pytest.raises(ValueError, match="n: expected a number of sequences, got"):
            kda.draft_scratch(pool, count, TOKENS)
    with pytest.raises(MemoryError):
        kda.draft_scratch(pool, 2**40, TOKENS)


def test_wrong_arguments_are_refused_by_name(library):
    case = Case(library)
    before = own_bits(library, case.pool)
    for name, array in case.arguments().items():
        cut = array[None] if name == "idx" else array[..., :-1]
        for wrong in (None, library.cast(array, "float64"), cut):
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                kda.draft(case.pool, **case.arguments(**{name: wrong}))
    # How many tokens there are, `mixed` says.
    for name, named in {"mixed": "a", "a": "a", "b": "b", "o": "o"}.items():
        shape = case.arguments()[name].shape
        fewer = case.drawn(shape[0], 2, *shape[2:])
        with pytest.raises(ValueError, match=rf"tensor '{named}': expected as many tokens \(dimension 1\) as 'mixed'"):
            kda.draft(case.pool, **case.arguments(**{name: fewer}))
    case.draft()
    accepted = case.indices(1, 2, 3, 0)
    given = {"idx": case.idx, "tokens": TOKENS, "scratch": case.scratch, "accepted": accepted, "q0": case.q0}
    for name in ("idx", "scratch", "accepted", "q0"):
        shorter = () if name == "idx" else (given[name][..., :1],)
        for wrong in (None, library.cast(given[name], "float64"), given[name][None], *shorter):
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                kda.commit(case.pool, **{**given, name: wrong})
    for position, wrong in ((0, (4, 0, 0, 0)), (3, (0, 0, 0, -1))):
        if library.device == "cuda":  # nobody reads them there before they are used
            case.commit(*wrong)
            assert case.pool.errors() == {"counter": position}
            continue
        with pytest.raises(ValueError, match="tensor 'accepted': expected 0 to 3 tokens, got"):
            case.commit(*wrong)
    assert own_bits(library, case.pool) == before


def test_outputs_that_overlap_are_refused(library):
    case = Case(library)
    for others in ({"a": case.o}, {"scratch": library.from_numpy(np.zeros(8, np.int8))}):
        with pytest.raises(ValueError, match=r"overlap|tensor 'scratch'"):
            kda.draft(case.pool, **case.arguments(**others))


def test_read_only_scratch_is_refused(numpy_library):
    case = Case(numpy_library)
    case.scratch.setflags(write=False)
    with pytest.raises(ValueError, match="tensor 'scratch': expected a writable array"):
        case.draft()


def test_drafts_follow_the_stream_and_can_be_captured(gate, cuda_library):
    """Rows that arrive late on a side stream, drafted and committed there: eagerly, and as a graph."""
    case = Case(cuda_library, gate)
    pools = [case.pool, case.filled(), case.filled()]
    accepted, mixed = case.indices(1, 2, 3, 0), case.rows["mixed"]

    def speculate(pool, rows, o):
        gate.op.draft(pool, **case.arguments(mixed=rows, o=o))
        gate.op.commit(pool, case.idx, TOKENS, case.scratch, accepted, case.q0)

    speculate(case.pool, mixed, case.o)
    expected = case.bits(case.o), own_bits(cuda_library, case.pool)
    o, late = torch.zeros_like(case.o), torch.zeros_like(mixed)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late.copy_(mixed)
        speculate(pools[1], late, o)
        assert not stream.query(), "a call waited for its stream"
    stream.synchronize()
    assert (case.bits(o), own_bits(cuda_library, pools[1])) == expected
    late.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        speculate(pools[2], late, o)
    late.copy_(mixed)
    graph.replay()
    assert (case.bits(o), own_bits(cuda_library, pools[2])) == expected


# ---- PyTorch's compilers ---------------------------------------------------------------------------------------------


@pytest.fixture
def torch_case(gate):
    need_torch()
    return Case(make_library("torch-cpu"), gate)


def check_operation(case, name, *rest):
    torch.library.opcheck(case.gate.operation(name), case.gate.operands(case.pool, *rest))


def test_opcheck_draft(torch_case):
    check_operation(torch_case, "draft", *torch_case.arguments().values(), -5.0)


def test_opcheck_commit(torch_case):
    torch_case.draft()
    accepted = torch_case.indices(1, 2, 3, 0)
    check_operation(torch_case, "commit", torch_case.idx, TOKENS, torch_case.scratch, accepted, torch_case.q0)


def test_compiled_speculation(torch_case):
    case, accepted = torch_case, torch_case.indices(1, 2, 3, 0)
    traced = case.filled()

    def speculate(pool, o):
        case.gate.op.draft(pool, **case.arguments(o=o))
        case.gate.op.commit(pool, case.idx, TOKENS, case.scratch, accepted, case.q0)
        return o.float().sum()

    expected = speculate(case.pool, case.o)
    assert torch.compile(speculate, fullgraph=True, backend="aot_eager")(traced, case.o * 0) == expected
    assert own_bits(case.library, traced) == own_bits(case.library, case.pool)
