# SPDX-License-Identifier: Apache-2.0
"""Dense states in and out of a pool, as _calls.py and the operations of torch.library share them."""

from . import _native
from ._arrays import argument, output
from ._flush import call


def import_state(pool, idx, state, offset, q0, order):
    counters = None if offset is None else argument("offset", offset)
    arguments = argument("idx", idx), argument("state", state), counters, argument("q0", q0)
    call(_native.import_state, pool, *arguments, order)


def export_state(pool, idx, state, order):
    call(_native.export_state, pool, argument("idx", idx), output("state", state), order)
