# SPDX-License-Identifier: Apache-2.0
"""The operations as PyTorch's compilers see them."""

import shutil
from importlib.util import find_spec

import pytest
from conftest import need, need_torch
from leapquant._arrays import torch
from slots import bits, checkpoint, fill


@pytest.fixture(autouse=True)
def torch_there():
    need_torch()


def draw(gate, library):
    return gate.draw(library, 2, 3, 4)


def filled(gate, library):
    inputs = draw(gate, library)
    pool = gate.pool(library, 4, num_heads=3)
    fill(pool, slice(1, 3), inputs)
    return pool, inputs, torch.arange(1, 3, dtype=torch.int32, device=library.device)


def test_opcheck_run(gate, torch_library):
    arguments = [draw(gate, torch_library)[name] for name in gate.inputs]
    torch.library.opcheck(gate.operation("run"), (*arguments, False))


def test_opcheck_flush_inplace(gate, torch_library):
    pool, inputs, idx = filled(gate, torch_library)
    torch.library.opcheck(gate.operation("flush_inplace"), gate.operands(pool, idx, inputs["q0"]))


@pytest.mark.parametrize("name", ["flush_now", "reset_slots", "copy_slots"])
def test_opcheck_slots(gate, torch_library, name):
    pool, inputs, idx = filled(gate, torch_library)
    rest = {"flush_now": (idx, inputs["q0"]), "reset_slots": (idx,), "copy_slots": (idx[:1], idx[1:])}[name]
    torch.library.opcheck(gate.operation(name), gate.operands(pool, *rest))


def test_operation_acts_on_copies_too(gate, torch_library):
    """A compiler may hand over copies of a pool's tensors: then these are flushed, and not the pool."""
    pool, inputs, idx = filled(gate, torch_library)
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in gate.operands(pool, idx, inputs["q0"])]
    before = torch_library.bits(pool.raw)
    gate.operation("flush_inplace")(*copies)
    assert torch_library.bits(pool.raw) == before
    gate.op.flush_inplace(pool, idx, inputs["q0"])
    assert torch_library.bits(pool.raw) == torch_library.bits(copies[0])
    assert torch_library.bits(pool.w) == torch_library.bits(copies[3])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_run(gate, torch_library, backend):
    inputs = draw(gate, torch_library)

    def scaled(**inputs):
        new = gate.op.run(**inputs)
        return new.codes, new.s_k * 2

    expected = scaled(**inputs)
    compiled = torch.compile(scaled, fullgraph=True, backend=backend)
    assert bits(torch_library, compiled(**inputs)) == bits(torch_library, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_flush_inplace(gate, torch_library, backend):
    pool, inputs, idx = filled(gate, torch_library)

    def step(pool, idx, q0):
        gate.op.flush_inplace(pool, idx, q0)
        return pool.w.sum()

    rest = torch.compile(step, fullgraph=True, backend=backend)(pool, idx, inputs["q0"])
    assert rest == 0
    assert bits(torch_library, checkpoint(pool, slice(1, 3))) == bits(torch_library, gate.op.run(**inputs))
    assert pool.errors() == {}


def test_inductor_flushes_the_pool_itself(gate, torch_library):
    """No copies are made, so that the pool's error word is the one that is written."""
    cuda = torch_library.device == "cuda"
    need(shutil.which("c++") and (not cuda or find_spec("triton")), "compiler for inductor", "LQ_REQUIRE_INDUCTOR")
    pool, inputs, idx = filled(gate, torch_library)
    idx = torch.cat([idx, idx.new_tensor([99])])

    def step(pool, idx, q0):
        gate.op.flush_inplace(pool, idx, q0 * 1.0)
        return pool.w.sum()

    assert torch.compile(step, fullgraph=True)(pool, idx, inputs["q0"]) == 0
    assert bits(torch_library, checkpoint(pool, slice(1, 3))) == bits(torch_library, gate.op.run(**inputs))
    assert pool.errors() == {"index": 2}


def test_exported_run(gate, torch_library):
    class Flush(torch.nn.Module):
        def forward(self, **inputs):
            return tuple(gate.op.run(**inputs))

    inputs = draw(gate, torch_library)
    exported = torch.export.export(Flush(), (), inputs)
    assert bits(torch_library, exported.module()(**inputs)) == bits(torch_library, gate.op.run(**inputs))


def test_fake_tensors(gate, torch_library):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        result = gate.op.run(**{name: mode.from_tensor(t) for name, t in draw(gate, torch_library).items()})
    assert [tuple(t.shape) for t in result] == [
        (2, 3, 128, 128),
        (2, 3, 128),
        (2, 3, 128),
        (2, 3, 4, 128),
        (2, 3, 4, 128),
    ]


def test_parameters(gate, torch_library):
    inputs = draw(gate, torch_library)
    parameter = torch.nn.Parameter(inputs["s_k"], requires_grad=False)
    assert bits(torch_library, gate.op.run(**{**inputs, "s_k": parameter})) == bits(
        torch_library, gate.op.run(**inputs)
    )
