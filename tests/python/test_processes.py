# SPDX-License-Identifier: Apache-2.0
"""Threads and forked processes, on the CPU: calls release the interpreter's lock, and have the bits of serial ones."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from families import FAMILIES
from leapquant import kda
from slots import bits, checkpoint, fill, make_pool


def test_threads(numpy_library):
    inputs = [FAMILIES["structured"](numpy_library, 2, 4, 4) for _ in range(8)]
    expected = [bits(numpy_library, kda.run(**i)) for i in inputs]
    pools = [make_pool(numpy_library, 3, num_heads=4) for _ in inputs]

    def work(pool, i):
        fill(pool, slice(1, None), i)
        kda.flush_inplace(pool, np.array([1, 2], np.int32), i["q0"])
        return bits(numpy_library, kda.run(**i)), bits(numpy_library, checkpoint(pool, slice(1, None)))

    with ThreadPoolExecutor(4) as executor:
        results = list(executor.map(work, pools, inputs))
    assert results == [(bits_of_run, bits_of_run) for bits_of_run in expected]


def test_forked_child(numpy_library):
    inputs = FAMILIES["structured"](numpy_library, 4, 4, 4)
    expected = bits(numpy_library, kda.run(**inputs))
    child = os.fork()
    if child == 0:
        same = bits(numpy_library, kda.run(**inputs)) == expected
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bits(numpy_library, kda.run(**inputs)) == expected
