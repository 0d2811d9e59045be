# SPDX-License-Identifier: Apache-2.0
"""Dense states in and out of a pool."""

import numpy as np
import pytest
import reference
from conftest import make_library, need_torch
from families import WINDOW, partly_filled
from gates import KDA
from leapquant._arrays import torch
from slots import OWN_BYTES, bits, checkpoint, filled, indices, is_reset, own_bits, window

SLOTS, HEADS, DIM = 5, 9, 128


def draw(gate, library):
    return partly_filled(library, gate.draw(library, SLOTS - 1, HEADS, 4))


def states(library, dtype="float32"):
    return library.cast(library.normal(SLOTS - 1, HEADS, DIM, DIM), dtype)


def transposed(library, state):
    """A copy whose last two dimensions are swapped in memory as well."""
    swapped = library.xp.swapaxes(state, -1, -2)
    return library.from_numpy(np.ascontiguousarray(library.to_numpy(swapped)))


def imported(gate, library, inputs, state, **options):
    pool = filled(gate, library, inputs)
    idx = indices(library, 1, 2, 3, 4)
    assert gate.op.import_state(pool, idx, state, inputs["q0"], **options) is None
    return pool


def test_export_is_the_formula(gate, library):
    inputs = draw(gate, library)
    pool = filled(gate, library, inputs)
    before = own_bits(library, pool)
    state = gate.op.export_state(pool, indices(library, 4, 1))
    assert own_bits(library, pool) == before
    assert tuple(state.shape) == (2, HEADS, DIM, DIM) and type(state) is type(pool.raw)
    taken = {name: library.cast(array, "float64") for name, array in inputs.items()}
    exact = reference.rebuild(library.xp, taken)
    for n, slot in enumerate((4, 1)):
        truth = exact[slot - 1]
        error = abs(library.cast(state[n], "float64") - truth)
        assert (error <= 1e-5 * abs(truth).max() + 1e-30).all()


def test_export_into_a_given_array_and_both_orders(gate, library):
    inputs = draw(gate, library)
    pool, idx = filled(gate, library, inputs), indices(library, 1, 0, 99, 3)
    given = states(library)
    assert gate.op.export_state(pool, idx, given) is given
    assert pool.errors() == {"index": 2}
    assert (given[1] == 0).all() and (given[2] == 0).all() and (given[3] != 0).any()
    swapped = gate.op.export_state(pool, idx, order="kv")
    assert library.bits(transposed(library, swapped)) == library.bits(given)


def test_import_is_the_checkpoint_of_a_flush(gate, library):
    """The state that a flush would have rebuilt, exported and imported: on the CPU the flush's bits."""
    inputs = draw(gate, library)
    pool, idx = filled(gate, library, inputs), indices(library, 1, 2, 3, 4)
    expected = gate.op.run(**{name: inputs[name] for name in gate.inputs})
    state = gate.op.export_state(pool, idx)
    gate.op.import_state(pool, idx, state, inputs["q0"])
    imported = checkpoint(pool, slice(1, None))
    if library.device == "cpu":
        assert bits(library, imported) == bits(library, expected)
    ours, flushed = (
        reference.decode(library.xp, [library.cast(array, "float64") for array in result])
        for result in (imported, expected)
    )
    exact = library.cast(state, "float64")
    size = abs(exact).mean((-1, -2))
    bound = 1.01 * abs(flushed - exact).mean((-1, -2)) + 1e-3 * size + 1e-30
    assert (abs(ours - exact).mean((-1, -2)) <= bound).all()
    assert (pool.hcnt[1:] == 0).all() and is_reset(pool, slice(1, None))
    assert pool.errors() == {}


def test_orders_and_strides_of_imported_states(gate, library):
    inputs, state = draw(gate, library), states(library)
    expected = own_bits(library, imported(gate, library, inputs, state))
    assert own_bits(library, imported(gate, library, inputs, transposed(library, state), order="kv")) == expected
    wide = library.xp.stack([state, state], 2)[:, :, 0]
    assert own_bits(library, imported(gate, library, inputs, wide)) == expected
    assert own_bits(library, imported(gate, library, inputs, transposed(library, state))) != expected
    with pytest.raises(ValueError, match="tensor 'state'"):
        imported(gate, library, inputs, library.xp.swapaxes(state, -1, -2))


def test_bfloat16_states(gate, library):
    inputs = draw(gate, library)
    narrow = states(library, "bfloat16")
    expected = own_bits(library, imported(gate, library, inputs, library.cast(narrow, "float32")))
    assert own_bits(library, imported(gate, library, inputs, narrow)) == expected


def test_offsets_are_empty_entries(gate, library):
    inputs, state = draw(gate, library), states(library)
    offsets = np.arange(HEADS, dtype=np.int32) * WINDOW // HEADS
    everywhere = np.broadcast_to(offsets, (SLOTS - 1, HEADS))
    staggered = imported(gate, library, inputs, state, offset=library.from_numpy(everywhere.copy()))
    assert (library.to_numpy(staggered.hcnt[1:]) == everywhere).all() and is_reset(staggered, slice(1, None))
    plain = imported(gate, library, inputs, state)
    idx = indices(library, 1, 2, 3, 4)
    assert library.bits(gate.op.export_state(staggered, idx)) == library.bits(gate.op.export_state(plain, idx))
    spread = library.xp.broadcast_to(library.from_numpy(offsets), (SLOTS - 1, HEADS))  # stride 0
    assert own_bits(library, imported(gate, library, inputs, state, offset=spread)) == own_bits(library, staggered)


def test_states_of_no_sequence_are_skipped(gate, library):
    inputs = draw(gate, library)
    pool = filled(gate, library, inputs)
    before = own_bits(library, pool)
    idx = indices(library, 0, -1, 99, SLOTS)
    gate.op.import_state(pool, idx, states(library), inputs["q0"])
    assert own_bits(library, pool) == before
    assert pool.errors() == {"index": 2}


def test_trouble_in_the_data_is_reported(gate, library):
    inputs, state = draw(gate, library), states(library)
    state[2, 3, 4, 5] = float("nan")
    pool = imported(gate, library, inputs, state)
    assert pool.errors() == {"nonfinite": 2}
    pool.hcnt[2, 3] = WINDOW + 1
    exported = gate.op.export_state(pool, indices(library, 1, 2))
    assert pool.errors() == {"counter": 1}
    assert (exported[1, 3] == 0).all() and (exported[1, 4] != 0).any()


def test_wrong_arguments_are_refused_by_name(gate, library):
    inputs, state = draw(gate, library), states(library)
    pool, idx = filled(gate, library, inputs), indices(library, 1, 2, 3, 4)
    before = own_bits(library, pool)
    offset = library.from_numpy(np.zeros((SLOTS - 1, HEADS), np.int32))
    given = {"idx": idx, "state": state, "q0": inputs["q0"], "offset": offset}
    wrong = {
        "idx": (None, idx[None]),
        "state": (None, library.cast(state, "float16"), state[:3], state[..., :-1], pool.raw),
        "q0": (None, inputs["q0"][:, :3]),
        "offset": (1, offset[0], offset[:, :-1]),
    }
    if library.device == "cpu":  # on devices nobody reads them before they are used
        wrong["offset"] += offset - 1, offset + WINDOW
    for name, array in given.items():
        for other in (library.cast(array, "float64"), *wrong[name]):
            with pytest.raises((TypeError, ValueError), match=f"tensor '{name}'"):
                gate.op.import_state(pool, **{**given, name: other})
    for other in (library.cast(state, "bfloat16"), state[:, ::2], state[..., :-1], 1.0):
        with pytest.raises((TypeError, ValueError), match="tensor 'state'"):
            gate.op.export_state(pool, idx, other)
    for other in wrong["idx"]:
        with pytest.raises((TypeError, ValueError), match="tensor 'idx'"):
            gate.op.export_state(pool, other)
    with pytest.raises(ValueError, match="order: expected 'vk' or 'kv', got 'VK'"):
        gate.op.import_state(pool, idx, state, inputs["q0"], order="VK")
    with pytest.raises(ValueError, match="order: expected 'vk' or 'kv', got 'VK'"):
        gate.op.export_state(pool, idx, order="VK")
    assert own_bits(library, pool) == before


def test_read_only_state_is_not_written(numpy_library):
    pool = filled(KDA, numpy_library, draw(KDA, numpy_library))
    state = states(numpy_library)
    state.setflags(write=False)
    with pytest.raises(ValueError, match="tensor 'state': expected a writable array"):
        KDA.op.export_state(pool, indices(numpy_library, 1, 2, 3, 4), state)


def test_devices_report_offsets_out_of_range(gate, cuda_library):
    inputs = draw(gate, cuda_library)
    offset = torch.zeros((SLOTS - 1, HEADS), dtype=torch.int32, device=cuda_library.device)
    offset[1, 3], offset[2, 0] = -1, WINDOW
    pool = imported(gate, cuda_library, inputs, states(cuda_library), offset=offset)
    untouched = filled(gate, cuda_library, inputs)
    assert pool.errors() == {"counter": 1}
    for slot, head, same in ((2, 3, True), (3, 0, True), (3, 1, False)):
        ours, theirs = (cuda_library.bits(p.kbuf[slot, head]) for p in (pool, untouched))
        assert (ours == theirs) == same


def test_states_follow_the_stream_and_can_be_captured(gate, cuda_library):
    """A state that arrives late on a side stream, imported and exported there: eagerly, and as a graph."""
    inputs, state = draw(gate, cuda_library), states(cuda_library)
    expected = imported(gate, cuda_library, inputs, state)
    idx = indices(cuda_library, 1, 2, 3, 4)
    exported = cuda_library.bits(gate.op.export_state(expected, idx))
    pool = filled(gate, cuda_library, inputs)
    late, result = torch.zeros_like(state), torch.zeros_like(state)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        late.copy_(state)
        gate.op.import_state(pool, idx, late, inputs["q0"])
        gate.op.export_state(pool, idx, result)
        assert not stream.query(), "a call waited for its stream"
    stream.synchronize()
    assert own_bits(cuda_library, pool) == own_bits(cuda_library, expected)
    assert cuda_library.bits(result) == exported
    captured, late = filled(gate, cuda_library, inputs), torch.zeros_like(state)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gate.op.import_state(captured, idx, late, inputs["q0"])
        gate.op.export_state(captured, idx, result)
    late.copy_(state)
    result.zero_()
    graph.replay()
    assert own_bits(cuda_library, captured) == own_bits(cuda_library, expected)
    assert cuda_library.bits(result) == exported


# ---- PyTorch's compilers ---------------------------------------------------------------------------------------------


@pytest.fixture
def torch_cpu():
    need_torch()
    return make_library("torch-cpu")


def check_operation(gate, pool, name, *rest):
    options = {"kda": (), "gdn": (pool.num_key_heads,)}[gate.name]
    operation = getattr(torch.ops.leapquant, f"{gate.name}_{name}").default
    tensors = (getattr(pool, n) for n in OWN_BYTES[gate.name])
    torch.library.opcheck(operation, (*tensors, *rest, *options, pool.rank, pool.layout))


@pytest.mark.parametrize("staggered", [False, True])
def test_opcheck_import(gate, torch_cpu, staggered):
    inputs = draw(gate, torch_cpu)
    pool, idx = filled(gate, torch_cpu, inputs), indices(torch_cpu, 1, 2, 3, 4)
    offset = torch.full((SLOTS - 1, HEADS), 3, dtype=torch.int32) if staggered else None
    check_operation(gate, pool, "import_state", idx, states(torch_cpu), offset, inputs["q0"], "vk")


def test_opcheck_export(gate, torch_cpu):
    pool = filled(gate, torch_cpu, draw(gate, torch_cpu))
    check_operation(gate, pool, "export_state", indices(torch_cpu, 1, 2, 3, 4), states(torch_cpu), "kv")


def test_compiled_round_trip(gate, torch_cpu):
    inputs, idx = draw(gate, torch_cpu), indices(torch_cpu, 1, 2, 3, 4)
    eager, traced = (filled(gate, torch_cpu, inputs) for _ in range(2))
    offset = torch.full((SLOTS - 1, HEADS), 3, dtype=torch.int32)

    def round_trip(pool, state):
        first = gate.op.export_state(pool, idx)
        gate.op.export_state(pool, idx, state, order="kv")
        total = first + state.swapaxes(-1, -2).contiguous()
        gate.op.import_state(pool, idx, total, inputs["q0"], offset=offset)
        return gate.op.export_state(pool, idx)

    expected = torch_cpu.bits(round_trip(eager, states(torch_cpu)))
    compiled = torch.compile(round_trip, fullgraph=True, backend="aot_eager")
    assert torch_cpu.bits(compiled(traced, states(torch_cpu))) == expected
    assert own_bits(torch_cpu, traced) == own_bits(torch_cpu, eager)
    assert bits(torch_cpu, window(traced, 1)) == bits(torch_cpu, window(eager, 1))
