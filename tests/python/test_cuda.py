# SPDX-License-Identifier: Apache-2.0
"""Streams, graphs and devices: all of it with the bits of serial calls."""

import subprocess
import sys

import pytest
from conftest import make_library, need_gpu
from families import FAMILIES
from leapquant import kda
from leapquant._arrays import torch
from libraries import TorchLibrary
from slots import bits, checkpoint, fill, make_pool, own_bits

SLOTS, HEADS = 6, 32
SOME_MILLISECONDS = 100_000_000  # clock cycles: 50 at 2 GHz


@pytest.fixture
def gpu():
    return make_library("torch-cuda")


def draw(library, family="structured"):
    return FAMILIES[family](library, SLOTS - 1, HEADS, 4)


def filled(library, inputs, **options):
    pool = make_pool(library, SLOTS, **options)
    fill(pool, slice(1, None), inputs)
    return pool


def every_slot(library):
    return torch.arange(1, SLOTS, dtype=torch.int32, device=library.device)


def rounds(library):
    """Changing windows, counters, selections and start bases."""
    for n, family in enumerate(("structured", "random", "second")):
        inputs = draw(library, family)
        counts = torch.full((SLOTS, HEADS), 16, dtype=torch.int32, device=library.device)
        counts[1 + n, n::3] = n
        idx = every_slot(library).roll(n)
        idx[n] = (0, -1, SLOTS)[n]
        yield inputs, counts, idx


@pytest.mark.parametrize("layout", ["padded", "compact"])
def test_replayed_graph_follows_its_inputs(gpu, layout):
    captured, eager = (filled(gpu, draw(gpu), layout=layout) for _ in range(2))
    idx, q0 = every_slot(gpu), draw(gpu)["q0"]
    graph = torch.cuda.CUDAGraph()
    before = own_bits(gpu, captured)
    with torch.cuda.graph(graph):
        kda.flush_inplace(captured, idx, q0)
    assert own_bits(gpu, captured) == before
    for inputs, counts, selection in rounds(gpu):
        for pool in (captured, eager):
            fill(pool, slice(1, None), inputs)
            pool.hcnt.copy_(counts)
        idx.copy_(selection)
        q0.copy_(inputs["q0"])
        graph.replay()
        kda.flush_inplace(eager, selection, inputs["q0"])
        assert own_bits(gpu, captured) == own_bits(gpu, eager)
        assert captured.errors() == eager.errors()


def test_captured_run(gpu):
    inputs = draw(gpu)
    kda.run(**inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = kda.run(**inputs)
    for other in (draw(gpu, "random"), draw(gpu)):
        for name, tensor in inputs.items():
            tensor.copy_(other[name])
        graph.replay()
        assert bits(gpu, result) == bits(gpu, kda.run(**other))


FIRST_CALL = """
import torch
from leapquant import kda
pool = kda.Pool(3, device="cuda")
pool.hcnt[1] = 16
pool.codes[1], pool.s_k[1], pool.s_v[1] = 100, 1.0, 1.0
idx, q0 = torch.ones(1, dtype=torch.int32, device="cuda"), torch.randn(128, 4, device="cuda")
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kda.flush_inplace(pool, idx, q0)
assert (pool.s_k[1] == 1).all()
graph.replay()
assert (pool.s_k[1] != 1).all() and (pool.w[1] == 0).all()
"""


def test_first_call_of_a_process_can_be_captured(gpu):
    done = subprocess.run([sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_side_stream_orders_the_call(gpu):
    """The windows arrive late on the stream; the flush must wait for them, and nobody else for the flush."""
    inputs = draw(gpu)
    expected = bits(gpu, kda.run(**inputs))
    pool, idx = make_pool(gpu, SLOTS), every_slot(gpu)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SOME_MILLISECONDS)
        fill(pool, slice(1, None), inputs)
        result = kda.run(**inputs)
        kda.flush_inplace(pool, idx, inputs["q0"])
        assert not stream.query(), "the call waited for its stream"
        errors = pool.errors()
        assert stream.query(), "errors() did not wait for the stream"
    assert errors == {}
    assert bits(gpu, checkpoint(pool, slice(1, None))) == expected
    assert bits(gpu, result) == expected


def test_two_pools_on_two_streams(gpu):
    families = ("structured", "random")
    inputs = [draw(gpu, family) for family in families]
    serial = [filled(gpu, i) for i in inputs]
    parallel = [filled(gpu, i) for i in inputs]
    streams = [torch.cuda.Stream() for _ in families]
    idx = every_slot(gpu)
    torch.cuda.synchronize()
    for _ in range(10):
        for pool, stream, i in zip(parallel, streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                kda.flush_inplace(pool, idx, i["q0"])
    torch.cuda.synchronize()
    for _ in range(10):
        for pool, i in zip(serial, inputs, strict=True):
            kda.flush_inplace(pool, idx, i["q0"])
    for one, other in zip(serial, parallel, strict=True):
        assert own_bits(gpu, one) == own_bits(gpu, other)


def test_call_allocates_nothing(gpu):
    inputs = draw(gpu)
    pool, idx = filled(gpu, inputs), every_slot(gpu)
    kda.flush_inplace(pool, idx, inputs["q0"])
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    for _ in range(100):
        kda.flush_inplace(pool, idx, inputs["q0"])
    torch.cuda.synchronize()
    assert (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]) == before


def test_devices_agree_with_the_cpu_in_all_but_last_bits(gpu):
    """The same inputs on host and device: decoded states that differ far less than either from the exact one."""
    import reference

    cpu = make_library("torch-cpu")
    inputs = draw(cpu)
    on_device = kda.run(**{name: tensor.to(gpu.device) for name, tensor in inputs.items()})
    states = [
        reference.decode(torch, [tensor.cpu().double() for tensor in result])
        for result in (kda.run(**inputs), on_device)
    ]
    size = abs(states[0]).mean((-1, -2))
    assert (abs(states[0] - states[1]).mean((-1, -2)) <= 1e-2 * size).all()


def test_wrong_device_is_refused(gpu):
    inputs = draw(gpu)
    pool, idx = filled(gpu, inputs), every_slot(gpu)
    with pytest.raises(ValueError, match=r"tensor 'idx': expected int32 .* on cuda:0, got device cpu"):
        kda.flush_inplace(pool, idx.cpu(), inputs["q0"])
    with pytest.raises(ValueError, match=r"tensor 'q0': expected float32 .* on cuda:0, got device cpu"):
        kda.flush_inplace(pool, idx, inputs["q0"].cpu())


def test_out_of_memory_is_a_memory_error_and_passes(gpu):
    with pytest.raises(MemoryError):
        make_pool(gpu, 2**20)
    inputs = draw(gpu)
    kda.flush_inplace(filled(gpu, inputs), every_slot(gpu), inputs["q0"])
    torch.cuda.synchronize()


def test_second_device():
    need_gpu(2)
    second = TorchLibrary("cuda:1")
    inputs = draw(second)
    expected = bits(second, kda.run(**inputs))
    pool, idx = filled(second, inputs), every_slot(second)
    kda.flush_inplace(pool, idx, inputs["q0"])
    assert torch.cuda.current_device() == 0
    assert bits(second, checkpoint(pool, slice(1, None))) == expected
    with pytest.raises(ValueError, match=r"tensor 'q0': .* on cuda:1, got device cuda:0"):
        kda.flush_inplace(pool, idx, inputs["q0"].to("cuda:0"))
