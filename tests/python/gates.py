# SPDX-License-Identifier: Apache-2.0
"""The gates that the tests run over: their modules, inputs and pools."""

from types import ModuleType
from typing import NamedTuple

import pytest
from families import FAMILIES, INPUTS
from leapquant import gdn, kda
from libraries import pool_arrays


class Gate(NamedTuple):
    name: str
    op: ModuleType

    @property
    def inputs(self):
        """The arguments of `run`, in their order."""
        return INPUTS[self.name]

    def draw(self, library, batch, heads, rank, family="structured"):
        return FAMILIES[family](library, self.name, batch, heads, rank)

    def pool(self, library, num_slots, **options):
        if self.name == "gdn" and "num_heads" in options:
            options = {"num_key_heads": options["num_heads"], **options}
        return self.op.Pool(num_slots, **pool_arrays(library), **options)


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
