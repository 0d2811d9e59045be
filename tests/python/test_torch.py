# SPDX-License-Identifier: Apache-2.0
"""The operations as PyTorch's compilers see them."""

import shutil
from importlib.util import find_spec

import pytest
from conftest import need, need_torch
from families import FAMILIES, INPUTS
from leapquant import kda
from leapquant._arrays import torch
from slots import bits, checkpoint, fill, make_pool


@pytest.fixture(autouse=True)
def torch_there():
    need_torch()


def draw(library):
    return FAMILIES["structured"](library, 2, 3, 4)


def filled(library):
    inputs = draw(library)
    pool = make_pool(library, 4, num_heads=3)
    fill(pool, slice(1, 3), inputs)
    return pool, inputs, torch.arange(1, 3, dtype=torch.int32, device=library.device)


def op_arguments(pool, idx, q0):
    return (pool.raw, pool.kbuf, pool.ubuf, pool.w, pool.gbuf, pool.pcum, pool.hcnt, idx, q0, pool.rank, pool.layout)


def test_opcheck_run(torch_library):
    arguments = [draw(torch_library)[name] for name in INPUTS]
    torch.library.opcheck(torch.ops.leapquant.kda_run.default, (*arguments, False))


def test_opcheck_flush_inplace(torch_library):
    pool, inputs, idx = filled(torch_library)
    torch.library.opcheck(torch.ops.leapquant.kda_flush_inplace.default, op_arguments(pool, idx, inputs["q0"]))


def test_operation_acts_on_copies_too(torch_library):
    """A compiler may hand over copies of a pool's tensors: then these are flushed, and not the pool."""
    pool, inputs, idx = filled(torch_library)
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in op_arguments(pool, idx, inputs["q0"])]
    before = torch_library.bits(pool.raw)
    torch.ops.leapquant.kda_flush_inplace(*copies)
    assert torch_library.bits(pool.raw) == before
    kda.flush_inplace(pool, idx, inputs["q0"])
    assert torch_library.bits(pool.raw) == torch_library.bits(copies[0])
    assert torch_library.bits(pool.w) == torch_library.bits(copies[3])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_run(torch_library, backend):
    inputs = draw(torch_library)

    def scaled(**inputs):
        new = kda.run(**inputs)
        return new.codes, new.s_k * 2

    expected = scaled(**inputs)
    compiled = torch.compile(scaled, fullgraph=True, backend=backend)
    assert bits(torch_library, compiled(**inputs)) == bits(torch_library, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_flush_inplace(torch_library, backend):
    pool, inputs, idx = filled(torch_library)

    def step(pool, idx, q0):
        kda.flush_inplace(pool, idx, q0)
        return pool.w.sum()

    rest = torch.compile(step, fullgraph=True, backend=backend)(pool, idx, inputs["q0"])
    assert rest == 0
    assert bits(torch_library, checkpoint(pool, slice(1, 3))) == bits(torch_library, kda.run(**inputs))
    assert pool.errors() == {}


def test_inductor_flushes_the_pool_itself(torch_library):
    """No copies are made, so that the pool's error word is the one that is written."""
    cuda = torch_library.device == "cuda"
    need(shutil.which("c++") and (not cuda or find_spec("triton")), "compiler for inductor", "LQ_REQUIRE_INDUCTOR")
    pool, inputs, idx = filled(torch_library)
    idx = torch.cat([idx, idx.new_tensor([99])])

    def step(pool, idx, q0):
        kda.flush_inplace(pool, idx, q0 * 1.0)
        return pool.w.sum()

    assert torch.compile(step, fullgraph=True)(pool, idx, inputs["q0"]) == 0
    assert bits(torch_library, checkpoint(pool, slice(1, 3))) == bits(torch_library, kda.run(**inputs))
    assert pool.errors() == {"index": 2}


def test_exported_run(torch_library):
    class Flush(torch.nn.Module):
        def forward(self, **inputs):
            return tuple(kda.run(**inputs))

    inputs = draw(torch_library)
    exported = torch.export.export(Flush(), (), inputs)
    assert bits(torch_library, exported.module()(**inputs)) == bits(torch_library, kda.run(**inputs))


def test_fake_tensors(torch_library):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        result = kda.run(**{name: mode.from_tensor(t) for name, t in draw(torch_library).items()})
    assert [tuple(t.shape) for t in result] == [
        (2, 3, 128, 128),
        (2, 3, 128),
        (2, 3, 128),
        (2, 3, 4, 128),
        (2, 3, 4, 128),
    ]


def test_parameters(torch_library):
    inputs = draw(torch_library)
    parameter = torch.nn.Parameter(inputs["s_k"], requires_grad=False)
    assert bits(torch_library, kda.run(**{**inputs, "s_k": parameter})) == bits(torch_library, kda.run(**inputs))
