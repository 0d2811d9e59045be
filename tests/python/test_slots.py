# SPDX-License-Identifier: Apache-2.0
"""What is done to whole slots."""

import pytest
from families import WINDOW, partly_filled
from slots import OWN_BYTES, bits, checkpoint, filled, indices, is_reset, own_bits

SLOTS, HEADS = 5, 9


def draw(gate, library):
    return partly_filled(library, gate.draw(library, SLOTS - 1, HEADS, 4))


def test_flush_now_takes_any_fill(gate, library):
    inputs = draw(gate, library)
    inputs["h"] = library.xp.clip(inputs["h"], 1, WINDOW)
    inputs["w"][..., 0] = 1
    pool = filled(gate, library, inputs)
    untouched = bits(library, checkpoint(pool, 2))
    gate.op.flush_now(pool, indices(library, 1, 3, 4), inputs["q0"])
    expected = gate.op.run(**{name: inputs[name] for name in gate.inputs})
    for slot in (1, 3, 4):
        assert bits(library, checkpoint(pool, slot)) == bits(library, [tensor[slot - 1] for tensor in expected])
        assert (pool.hcnt[slot] == 0).all() and is_reset(pool, slot)
    assert bits(library, checkpoint(pool, 2)) == untouched


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_reset_slots_are_new_ones(gate, library, layout):
    pool = filled(gate, library, draw(gate, library), layout=layout)
    new = gate.pool(library, SLOTS, num_heads=HEADS, layout=layout)
    before = own_bits(library, pool)
    gate.op.reset_slots(pool, indices(library, 0, -3))
    assert own_bits(library, pool) == before
    gate.op.reset_slots(pool, indices(library, 1, 2, 2, 3, 4, 0, 99))
    assert own_bits(library, pool) == own_bits(library, new)
    assert pool.errors() == {"index": 6}


def test_copied_slots_have_the_same_bytes(gate, library):
    pool = filled(gate, library, draw(gate, library))
    gate.op.copy_slots(pool, indices(library, 1, 1, 0), indices(library, 2, 4, 3))
    for name in (*OWN_BYTES[gate.name][1:], "codes", "s_k", "s_v", "uq"):
        tensor = getattr(pool, name)
        assert library.bits(tensor[2]) == library.bits(tensor[4]) == library.bits(tensor[1]), name
        assert library.bits(tensor[3]) != library.bits(tensor[1]), name
    if library.device == "cuda":
        return  # nobody reads the lists there before they are used
    for sources, targets in (((1, 2), (3, 3)), ((1, 2), (2, 3))):
        with pytest.raises(ValueError, match="slot"):
            gate.op.copy_slots(pool, indices(library, *sources), indices(library, *targets))
