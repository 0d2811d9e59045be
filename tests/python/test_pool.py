# SPDX-License-Identifier: Apache-2.0
"""Pools: views, what a flush touches, refusals, the error word."""

import gc

import numpy as np
import pytest
from gates import GATES, GDN
from hypothesis import given, settings
from hypothesis import strategies as st
from leapquant._arrays import torch
from libraries import NumpyLibrary
from slots import bits, checkpoint, fill, indices, is_reset, own_bits, take, window

LAYOUTS = ("padded", "compact")


def filled(gate, library, num_slots=4, heads=3, rank=4, **options):
    """A pool whose slots from 1 on are all due, and the inputs that they were filled with."""
    pool = gate.pool(library, num_slots, num_heads=heads, rank=rank, **options)
    inputs = gate.draw(library, num_slots - 1, heads, rank)
    fill(pool, slice(1, None), inputs)
    return pool, inputs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fresh_slots_are_zero_states(gate, library, layout):
    pool = gate.pool(library, 3, layout=layout)
    assert [tuple(getattr(pool, name).shape) for name in ("codes", "s_k", "s_v", "uq", "kbuf", "ubuf")] == [
        (3, 32, 128, 128),
        (3, 32, 128),
        (3, 32, 128),
        (3, 32, 4, 256),
        (3, 32, 16, 128),
        (3, 32, 16, 128),
    ]
    for name in ("raw", "kbuf", "ubuf", "hcnt", "codes"):
        assert not np.any(library.bits(getattr(pool, name)).strip(b"\0")), name
    assert is_reset(pool, slice(None))
    assert pool.errors() == {}


@pytest.mark.parametrize(
    ("layout", "base", "head", "slot"), [("padded", 49152, 65536, 33 * 65536), ("compact", 0, 19456, 32 * 19456)]
)
def test_layouts_are_the_documented_ones(gate, library, layout, base, head, slot):
    pool = gate.pool(library, 3, layout=layout)
    # A byte of slot 2, head 5 in each tensor, where the format puts it.
    region = base + 2 * slot + 5 * head
    assert pool.raw.shape[0] * 4 == base + 3 * slot
    pool.codes[2, 5, 1, 2] = 77
    pool.s_k[2, 5, 3], pool.s_v[2, 5, 4], pool.uq[2, 5, 1, 6] = 1, 2, 3
    raw = np.frombuffer(library.bits(pool.raw), np.uint8)
    assert raw[region + 128 + 2] == 77
    assert raw[region + 16384 :][:512].view(np.float32)[3] == 1
    assert raw[region + 16896 :][:512].view(np.float32)[4] == 2
    assert raw[region + 17408 :][:2048].view(np.float16)[256 + 6] == 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "rank"), [(1, 1), (3, 2), (32, 4), (4, 8)])
def test_flush_is_run_in_place(gate, library, layout, heads, rank):
    pool, inputs = filled(gate, library, heads=heads, rank=rank, layout=layout)
    expected = bits(library, gate.op.run(**inputs))
    assert gate.op.flush_inplace(pool, indices(library, 3, 1, 2), inputs["q0"]) is None
    assert bits(library, checkpoint(pool, slice(1, None))) == expected
    assert is_reset(pool, slice(1, None))
    assert (pool.hcnt[1:] == 16).all()


def test_only_what_is_due_and_selected_changes(gate, library):
    pool, inputs = filled(gate, library, num_slots=6)
    pool.hcnt[2], pool.hcnt[3, 1] = 15, 17
    pool.hcnt[4, 0] = -1
    before = own_bits(library, pool)
    parts = [bits(library, [*checkpoint(pool, n), *window(pool, n)]) for n in range(6)]
    gate.op.flush_inplace(pool, indices(library, 2, 0, -1, 3), inputs["q0"])
    after = own_bits(library, pool)
    assert {name for name in before if before[name] != after[name]} == {"raw", "w", "gbuf", "pcum", "p"} & before.keys()
    changed = [n for n in range(6) if bits(library, [*checkpoint(pool, n), *window(pool, n)]) != parts[n]]
    assert changed == [3]
    alone = gate.op.run(**take(inputs, slice(2, 3)))
    for head in (0, 2):
        result = [tensor[0, head] for tensor in alone]
        assert bits(library, [tensor[head] for tensor in checkpoint(pool, 3)]) == bits(library, result)
    assert pool.errors() == {}


def test_indices_beyond_the_pool(gate, library):
    pool, inputs = filled(gate, library)
    gate.op.flush_inplace(pool, indices(library, 0, 2, 0, -1, 4, 2**31 - 1), inputs["q0"])
    assert is_reset(pool, 2) and (pool.w[1, 0] != 0).all()
    assert pool.errors() == {"index": 4}
    assert pool.errors() == {}


def test_nonfinite_states_are_reported(gate, library):
    pool, inputs = filled(gate, library)
    pool.s_k[3, 1, 7] = float("inf")
    gate.op.flush_inplace(pool, indices(library, 1, 2, 3), inputs["q0"])
    assert pool.errors() == {"nonfinite": 2}
    assert bits(library, checkpoint(pool, slice(1, 3))) == bits(library, gate.op.run(**take(inputs, slice(0, 2))))


def test_padded_batches_and_empty_ones(gate, library):
    pool, inputs = filled(gate, library, num_slots=3)
    before = own_bits(library, pool)
    gate.op.flush_inplace(pool, indices(library), inputs["q0"])
    assert own_bits(library, pool) == before
    gate.op.flush_inplace(pool, indices(library, 1, 2, 0, 0, 0, 0, 0, 0), inputs["q0"])
    assert bits(library, checkpoint(pool, slice(1, None))) == bits(library, gate.op.run(**inputs))


def test_duplicates_are_reported_on_request(gate, library):
    pool, _ = filled(gate, library)
    pool.check_indices(indices(library, 1, 0, 2, 0, -1))
    with pytest.raises(ValueError, match="idx: slot 2 stands at positions 1 and 3"):
        pool.check_indices(indices(library, 1, 2, 3, 2))


def test_wrong_arguments(gate, library):
    pool, inputs = filled(gate, library)
    before = own_bits(library, pool)
    idx, q0 = indices(library, 1, 2), inputs["q0"]
    wide = library.xp.stack([idx, idx], -1)
    for wrong in (library.cast(idx, "int64"), library.cast(idx, "float32"), wide, wide[:, 0], idx[:1].reshape(())):
        with pytest.raises((TypeError, ValueError), match="tensor 'idx': expected int"):
            gate.op.flush_inplace(pool, wrong, q0)
    for wrong in (q0[:, :2], q0[:64], q0.T, library.cast(q0, "float16")):
        with pytest.raises(ValueError, match="tensor 'q0': expected float32"):
            gate.op.flush_inplace(pool, idx, wrong)
    for wrong in (None, [1, 2], 1):
        with pytest.raises(TypeError, match="tensor 'idx': expected an array"):
            gate.op.flush_inplace(pool, wrong, q0)
    assert own_bits(library, pool) == before


def test_tensors_that_pytorch_does_not_export(gate, torch_library):
    pool, inputs = filled(gate, torch_library)
    idx, q0 = indices(torch_library, 1, 2), inputs["q0"]
    for name, wrong in (
        ("q0", q0.to_sparse()),
        ("q0", q0.to("meta")),
        ("idx", idx.to_sparse()),
        ("idx", idx.to("meta")),
    ):
        with pytest.raises(TypeError, match=f"tensor '{name}': expected a strided tensor on cpu or cuda"):
            gate.op.flush_inplace(pool, **{"idx": idx, "q0": q0, name: wrong})


def test_lazy_negation(gate, torch_library):
    pool, inputs = filled(gate, torch_library)
    gate.op.flush_inplace(pool, indices(torch_library, 1), torch._neg_view(-inputs["q0"]))
    expected = gate.op.run(**take(inputs, slice(0, 1)))
    assert bits(torch_library, checkpoint(pool, slice(1, 2))) == bits(torch_library, expected)


def test_arguments_inside_the_pool_are_refused(gate, library):
    pool, inputs = filled(gate, library)
    with pytest.raises(ValueError, match=r"tensor 'idx': .* overlap with 'pool.hcnt'"):
        gate.op.flush_inplace(pool, pool.hcnt.reshape(-1), inputs["q0"])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_slots": 0}, "num_slots must be at least 1"),
        ({"num_slots": -5}, "num_slots must be at least 1"),
        ({"num_heads": 0}, "head"),
        ({"num_heads": 2**40}, "head"),
        ({"rank": 3}, "supports rank 1, 2, 4, 8"),
        ({"layout": "dense"}, "layout: expected 'padded' or 'compact', got 'dense'"),
        ({"arrays": "tuples"}, "arrays: expected 'torch', 'numpy' or None"),
    ],
)
def test_wrong_pools(gate, numpy_library, options, text):
    with pytest.raises(ValueError, match=text):
        gate.op.Pool(**{"num_slots": 2, "device": "cpu", "arrays": "numpy", **options})


def test_pools_that_do_not_fit(gate, library):
    with pytest.raises(MemoryError):
        gate.pool(library, 2**33)
    pool, inputs = filled(gate, library)
    gate.op.flush_inplace(pool, indices(library, 1), inputs["q0"])


def test_views_cannot_be_replaced(gate, library):
    pool = gate.pool(library, 2)
    with pytest.raises(AttributeError, match=r"assign to its elements, pool.w\[...\]"):
        pool.w = pool.w + 1
    pool.hcnt += 3
    assert (pool.hcnt == 3).all()


def test_views_outlive_the_pool(gate, library):
    pool, _ = filled(gate, library)
    codes, expected = pool.codes, library.bits(pool.codes)
    del pool
    gc.collect()
    assert library.bits(codes) == expected


def test_repr_says_what_it_is(gate, numpy_library):
    heads = {"kda": "num_heads=32", "gdn": "num_heads=32, num_key_heads=16"}[gate.name]
    assert repr(gate.pool(numpy_library, 2, rank=1)) == f"Pool(2, device='cpu', {heads}, rank=1, layout='padded')"


def test_windows_have_the_published_shapes(library):
    """Of slots; every program has a p, with a dimension of its own."""
    pool = GDN.pool(library, 3, num_heads=4, num_key_heads=2)
    assert (tuple(pool.w.shape), tuple(pool.p.shape)) == ((3, 4, 16), (3, 4, 1))
    assert not hasattr(pool, "gbuf") and not hasattr(pool, "pcum")


@pytest.mark.parametrize(("heads", "key_heads"), [(32, 16), (64, 16), (4, 4), (3, 1)])
def test_shared_keys_change_nothing_for_the_flush(library, heads, key_heads):
    pool, inputs = filled(GDN, library, num_slots=2, heads=heads, num_key_heads=key_heads)
    GDN.op.flush_inplace(pool, indices(library, 1), inputs["q0"])
    assert bits(library, checkpoint(pool, slice(1, None))) == bits(library, GDN.op.run(**inputs))


@pytest.mark.parametrize("key_heads", [0, -1, 3, 64])
def test_key_heads_divide_the_heads(numpy_library, key_heads):
    with pytest.raises(ValueError, match="num_key_heads must"):
        GDN.pool(numpy_library, 2, num_heads=32, num_key_heads=key_heads)


def test_views_of_a_pool_are_inputs(gate, library):
    """Nothing has to be reshaped to flush slots functionally."""
    pool, inputs = filled(gate, library)
    views = dict(zip(gate.inputs[:5], checkpoint(pool, slice(1, None)), strict=True))
    views |= {name: getattr(pool, name)[1:] for name in gate.inputs[5:-1]}
    assert bits(library, gate.op.run(**views, q0=inputs["q0"])) == bits(library, gate.op.run(**inputs))


counters = st.one_of(st.just(16), st.integers(-2, 18), st.sampled_from([2**31 - 1, -(2**31)]))


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.name)
@settings(max_examples=40, deadline=None)
@given(
    idx=st.lists(st.integers(-2, 6), max_size=9),
    counts=st.lists(counters, min_size=10, max_size=10),
    layout=st.sampled_from(LAYOUTS),
)
def test_any_selection(gate, idx, counts, layout):
    """Against a model: a program changes when its slot is selected and its counter is 16, and then as in `run`."""
    library = NumpyLibrary()
    heads, num_slots = 2, 5
    idx = [n for position, n in enumerate(idx) if n <= 0 or n not in idx[:position]]
    pool, inputs = filled(gate, library, num_slots=num_slots, heads=heads, layout=layout)
    pool.hcnt[:] = np.array(counts).reshape(num_slots, heads)
    old = [tensor.copy() for tensor in checkpoint(pool, slice(None))]
    new = gate.op.run(**inputs)
    gate.op.flush_inplace(pool, np.array(idx, np.int32), inputs["q0"])
    for slot in range(num_slots):
        for head in range(heads):
            due = slot in idx and slot > 0 and counts[slot * heads + head] == 16
            expected = [tensor[slot - 1, head] for tensor in new] if due else [tensor[slot, head] for tensor in old]
            assert bits(library, [tensor[slot, head] for tensor in checkpoint(pool, slice(None))]) == bits(
                library, expected
            )
    beyond = [position for position, n in enumerate(idx) if n >= num_slots]
    assert pool.errors() == ({"index": beyond[0]} if beyond else {})
