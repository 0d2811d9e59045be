# SPDX-License-Identifier: Apache-2.0
"""The gates that the tests run over: their modules, inputs and pools."""

from types import ModuleType
from typing import NamedTuple

import pytest
from families import FAMILIES, INPUTS, STEP_INPUTS, draw_step
from leapquant import gdn, kda
from leapquant._arrays import torch
from libraries import pool_arrays
from slots import OWN_BYTES


class Gate(NamedTuple):
    name: str
    op: ModuleType

    @property
    def inputs(self):
        """The arguments of `run`, in their order."""
        return INPUTS[self.name]

    @property
    def step_inputs(self):
        """The arguments of `step`, in their order."""
        return STEP_INPUTS[self.name]

    def shared(self, heads):
        """The pool's options for heads of which three share a key head, where the gate has such."""
        return {"num_heads": heads} if self.name == "kda" else {"num_heads": heads, "num_key_heads": heads // 3}

    def draw_step(self, library, batch, heads, rank):
        """For pools of shared()."""
        key_heads = self.shared(heads).get("num_key_heads", heads)
        return draw_step(library, self.name, batch, heads, key_heads, rank)

    def draw(self, library, batch, heads, rank, family="structured"):
        return FAMILIES[family](library, self.name, batch, heads, rank)

    def pool(self, library, num_slots, **options):
        if self.name == "gdn" and "num_heads" in options:
            options = {"num_key_heads": options["num_heads"], **options}
        return self.op.Pool(num_slots, **pool_arrays(library), **options)

    def operation(self, name):
        """As torch.library has it."""
        return getattr(torch.ops.leapquant, f"{self.name}_{name}").default

    def operands(self, pool, *rest):
        """The arguments of an operation on a pool."""
        options = {"kda": (), "gdn": (pool.num_key_heads,)}[self.name]
        return (*(getattr(pool, name) for name in OWN_BYTES[self.name]), *rest, *options, pool.rank, pool.layout)


KDA, GDN = Gate("kda", kda), Gate("gdn", gdn)
GATES = (KDA, GDN)


def gates_and(*names, but=None):
    """Parameters (gate, name): the inputs of each gate, or those of `names` that it has, one left out."""
    return [
        pytest.param(gate, name, id=f"{gate.name}-{name}")
        for gate in GATES
        for name in gate.inputs
        if name != but and (not names or name in names)
    ]
