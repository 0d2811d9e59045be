# SPDX-License-Identifier: Apache-2.0
"""Threads and forked processes, on the CPU: calls release the interpreter's lock, and have the bits of serial ones."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from slots import bits, checkpoint, fill


def test_threads(gate, numpy_library):
    inputs = [gate.draw(numpy_library, 2, 4, 4) for _ in range(8)]
    expected = [bits(numpy_library, gate.op.run(**i)) for i in inputs]
    pools = [gate.pool(numpy_library, 3, num_heads=4) for _ in inputs]

    def work(pool, i):
        fill(pool, slice(1, None), i)
        gate.op.flush_inplace(pool, np.array([1, 2], np.int32), i["q0"])
        return bits(numpy_library, gate.op.run(**i)), bits(numpy_library, checkpoint(pool, slice(1, None)))

    with ThreadPoolExecutor(4) as executor:
        results = list(executor.map(work, pools, inputs))
    assert results == [(bits_of_run, bits_of_run) for bits_of_run in expected]


def test_forked_child(gate, numpy_library):
    inputs = gate.draw(numpy_library, 4, 4, 4)
    expected = bits(numpy_library, gate.op.run(**inputs))
    child = os.fork()
    if child == 0:
        same = bits(numpy_library, gate.op.run(**inputs)) == expected
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bits(numpy_library, gate.op.run(**inputs)) == expected
