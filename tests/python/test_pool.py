# SPDX-License-Identifier: Apache-2.0
"""Pools: views, what a flush touches, refusals, the error word."""

import gc

import numpy as np
import pytest
from families import FAMILIES
from hypothesis import given, settings
from hypothesis import strategies as st
from leapquant import kda
from leapquant._arrays import torch
from libraries import NumpyLibrary
from slots import bits, checkpoint, fill, make_pool, own_bits, take, window

LAYOUTS = ("padded", "compact")


def indices(library, *values):
    return library.from_numpy(np.array(values, np.int32))


def filled(library, num_slots=4, heads=3, rank=4, **options):
    """A pool whose slots from 1 on are all due, and the inputs that they were filled with."""
    pool = make_pool(library, num_slots, num_heads=heads, rank=rank, **options)
    inputs = FAMILIES["structured"](library, num_slots - 1, heads, rank)
    fill(pool, slice(1, None), inputs)
    return pool, inputs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fresh_slots_are_zero_states(library, layout):
    pool = make_pool(library, 3, layout=layout)
    assert [tuple(getattr(pool, name).shape) for name in ("codes", "s_k", "s_v", "uq", "kbuf", "ubuf")] == [
        (3, 32, 128, 128),
        (3, 32, 128),
        (3, 32, 128),
        (3, 32, 4, 256),
        (3, 32, 16, 128),
        (3, 32, 16, 128),
    ]
    for name in ("raw", "kbuf", "ubuf", "w", "pcum", "hcnt", "codes"):
        assert not np.any(library.bits(getattr(pool, name)).strip(b"\0")), name
    assert (pool.gbuf == 1).all()
    assert pool.errors() == {}


@pytest.mark.parametrize(
    ("layout", "base", "head", "slot"), [("padded", 49152, 65536, 33 * 65536), ("compact", 0, 19456, 32 * 19456)]
)
def test_layouts_are_the_documented_ones(library, layout, base, head, slot):
    pool = make_pool(library, 3, layout=layout)
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
def test_flush_is_run_in_place(library, layout, heads, rank):
    pool, inputs = filled(library, heads=heads, rank=rank, layout=layout)
    expected = bits(library, kda.run(**inputs))
    assert kda.flush_inplace(pool, indices(library, 3, 1, 2), inputs["q0"]) is None
    assert bits(library, checkpoint(pool, slice(1, None))) == expected
    weights, gates, decay = window(pool, slice(1, None))
    assert (weights == 0).all() and (gates == 1).all() and (decay == 0).all()
    assert (pool.hcnt[1:] == 16).all()


def test_only_what_is_due_and_selected_changes(library):
    pool, inputs = filled(library, num_slots=6)
    pool.hcnt[2], pool.hcnt[3, 1] = 15, 17
    pool.hcnt[4, 0] = -1
    before = own_bits(library, pool)
    parts = [bits(library, [*checkpoint(pool, n), *window(pool, n)]) for n in range(6)]
    kda.flush_inplace(pool, indices(library, 2, 0, -1, 3), inputs["q0"])
    after = own_bits(library, pool)
    assert {name for name in before if before[name] != after[name]} == {"raw", "w", "gbuf", "pcum"}
    changed = [n for n in range(6) if bits(library, [*checkpoint(pool, n), *window(pool, n)]) != parts[n]]
    assert changed == [3]
    alone = kda.run(**take(inputs, slice(2, 3)))
    for head in (0, 2):
        result = [tensor[0, head] for tensor in alone]
        assert bits(library, [tensor[head] for tensor in checkpoint(pool, 3)]) == bits(library, result)
    assert pool.errors() == {}


def test_indices_beyond_the_pool(library):
    pool, inputs = filled(library)
    kda.flush_inplace(pool, indices(library, 0, 2, 0, -1, 4, 2**31 - 1), inputs["q0"])
    assert (pool.w[2] == 0).all() and (pool.w[1, 0] == 1).all()
    assert pool.errors() == {"index": 4}
    assert pool.errors() == {}


def test_nonfinite_states_are_reported(library):
    pool, inputs = filled(library)
    pool.s_k[3, 1, 7] = float("inf")
    kda.flush_inplace(pool, indices(library, 1, 2, 3), inputs["q0"])
    assert pool.errors() == {"nonfinite": 2}
    assert bits(library, checkpoint(pool, slice(1, 3))) == bits(library, kda.run(**take(inputs, slice(0, 2))))


def test_padded_batches_and_empty_ones(library):
    pool, inputs = filled(library, num_slots=3)
    before = own_bits(library, pool)
    kda.flush_inplace(pool, indices(library), inputs["q0"])
    assert own_bits(library, pool) == before
    kda.flush_inplace(pool, indices(library, 1, 2, 0, 0, 0, 0, 0, 0), inputs["q0"])
    assert bits(library, checkpoint(pool, slice(1, None))) == bits(library, kda.run(**inputs))


def test_duplicates_are_reported_on_request(library):
    pool, _ = filled(library)
    pool.check_indices(indices(library, 1, 0, 2, 0, -1))
    with pytest.raises(ValueError, match="idx: slot 2 stands at positions 1 and 3"):
        pool.check_indices(indices(library, 1, 2, 3, 2))


def test_wrong_arguments(library):
    pool, inputs = filled(library)
    before = own_bits(library, pool)
    idx, q0 = indices(library, 1, 2), inputs["q0"]
    wide = library.xp.stack([idx, idx], -1)
    for wrong in (library.cast(idx, "int64"), library.cast(idx, "float32"), wide, wide[:, 0], idx[:1].reshape(())):
        with pytest.raises((TypeError, ValueError), match="tensor 'idx': expected int"):
            kda.flush_inplace(pool, wrong, q0)
    for wrong in (q0[:, :2], q0[:64], q0.T, library.cast(q0, "float16")):
        with pytest.raises(ValueError, match="tensor 'q0': expected float32"):
            kda.flush_inplace(pool, idx, wrong)
    for wrong in (None, [1, 2], 1):
        with pytest.raises(TypeError, match="tensor 'idx': expected an array"):
            kda.flush_inplace(pool, wrong, q0)
    assert own_bits(library, pool) == before


def test_tensors_that_pytorch_does_not_export(torch_library):
    pool, inputs = filled(torch_library)
    idx, q0 = indices(torch_library, 1, 2), inputs["q0"]
    for name, wrong in (
        ("q0", q0.to_sparse()),
        ("q0", q0.to("meta")),
        ("idx", idx.to_sparse()),
        ("idx", idx.to("meta")),
    ):
        with pytest.raises(TypeError, match=f"tensor '{name}': expected a strided tensor on cpu or cuda"):
            kda.flush_inplace(pool, **{"idx": idx, "q0": q0, name: wrong})


def test_lazy_negation(torch_library):
    pool, inputs = filled(torch_library)
    kda.flush_inplace(pool, indices(torch_library, 1), torch._neg_view(-inputs["q0"]))
    expected = kda.run(**take(inputs, slice(0, 1)))
    assert bits(torch_library, checkpoint(pool, slice(1, 2))) == bits(torch_library, expected)


def test_arguments_inside_the_pool_are_refused(library):
    pool, inputs = filled(library)
    with pytest.raises(ValueError, match=r"tensor 'idx': .* overlap with 'pool.hcnt'"):
        kda.flush_inplace(pool, pool.hcnt.reshape(-1), inputs["q0"])


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
def test_wrong_pools(numpy_library, options, text):
    with pytest.raises(ValueError, match=text):
        kda.Pool(**{"num_slots": 2, "device": "cpu", "arrays": "numpy", **options})


def test_pools_that_do_not_fit(library):
    with pytest.raises(MemoryError):
        make_pool(library, 2**33)
    pool, inputs = filled(library)
    kda.flush_inplace(pool, indices(library, 1), inputs["q0"])


def test_views_cannot_be_replaced(library):
    pool = make_pool(library, 2)
    with pytest.raises(AttributeError, match=r"assign to its elements, pool.w\[...\]"):
        pool.w = pool.w + 1
    pool.hcnt += 3
    assert (pool.hcnt == 3).all()


def test_views_outlive_the_pool(library):
    pool, _ = filled(library)
    codes, expected = pool.codes, library.bits(pool.codes)
    del pool
    gc.collect()
    assert library.bits(codes) == expected


def test_repr_says_what_it_is(numpy_library):
    assert repr(make_pool(numpy_library, 2, rank=1)) == "Pool(2, device='cpu', num_heads=32, rank=1, layout='padded')"


counters = st.one_of(st.just(16), st.integers(-2, 18), st.sampled_from([2**31 - 1, -(2**31)]))


@settings(max_examples=40, deadline=None)
@given(
    idx=st.lists(st.integers(-2, 6), max_size=9),
    counts=st.lists(counters, min_size=10, max_size=10),
    layout=st.sampled_from(LAYOUTS),
)
def test_any_selection(idx, counts, layout):
    """Against a model: a program changes when its slot is selected and its counter is 16, and then as in `run`."""
    library = NumpyLibrary()
    heads, num_slots = 2, 5
    idx = [n for position, n in enumerate(idx) if n <= 0 or n not in idx[:position]]
    pool, inputs = filled(library, num_slots=num_slots, heads=heads, layout=layout)
    pool.hcnt[:] = np.array(counts).reshape(num_slots, heads)
    old = [tensor.copy() for tensor in checkpoint(pool, slice(None))]
    new = kda.run(**inputs)
    kda.flush_inplace(pool, np.array(idx, np.int32), inputs["q0"])
    for slot in range(num_slots):
        for head in range(heads):
            due = slot in idx and slot > 0 and counts[slot * heads + head] == 16
            expected = [tensor[slot - 1, head] for tensor in new] if due else [tensor[slot, head] for tensor in old]
            assert bits(library, [tensor[slot, head] for tensor in checkpoint(pool, slice(None))]) == bits(
                library, expected
            )
    beyond = [position for position, n in enumerate(idx) if n >= num_slots]
    assert pool.errors() == ({"index": beyond[0]} if beyond else {})
