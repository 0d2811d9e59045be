# SPDX-License-Identifier: Apache-2.0
"""The two code blocks that callers of the published package were given, run as they stand; and the same for GDN."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import make_library, need
from families import CHECKPOINT
from leapquant._arrays import torch
from slots import checkpoint, is_reset

LOAD = {
    "cuda": """
import torch
from kernels import get_kernel
op = get_kernel("humanfia-lab/leapquant", version=1, trust_remote_code=True).kda
""",
    "cpu": """
import os, pathlib, torch
from kernels import get_local_kernel
op = get_local_kernel(pathlib.Path(os.environ["LQ_TEST_HUB"]), backend="cpu").kda
""",
}

RUN = """
B, H, V, K, L, R = 16, 32, 128, 128, 16, 4
codes = torch.zeros(B, H, V, K, dtype=torch.int8, device="cuda")
s_k = torch.full((B, H, K), 0.05, device="cuda")
s_v = torch.full((B, H, V), 0.3, device="cuda")
u = torch.zeros(B, H, R, K, dtype=torch.float16, device="cuda")
q = torch.zeros(B, H, R, V, dtype=torch.float16, device="cuda")
kbuf = (torch.randn(B, H, L, K, device="cuda") * 0.3).bfloat16()
ubuf = (torch.randn(B, H, L, V, device="cuda") * 0.3).bfloat16()
w = torch.rand(B, H, L, device="cuda")
gbuf = torch.ones_like(kbuf, dtype=torch.float16)
pcum = torch.zeros(B, H, K, device="cuda")
q0 = torch.linalg.qr(torch.randn(V, R, device="cuda"))[0].contiguous()
new_codes, new_s_k, new_s_v, new_u, new_q = op.run(
    codes, s_k, s_v, u, q, kbuf, ubuf, gbuf, w, pcum, q0
)
"""

POOL = """
pool = op.Pool(B + 8, device="cuda")  # allocates buffers and JIT-compiles kernels
sl = slice(1, B + 1)                  # slot 0 is reserved
pool.codes[sl], pool.s_k[sl], pool.s_v[sl] = codes, s_k, s_v
pool.uq[sl, :, :, :K], pool.uq[sl, :, :, K:] = u, q
pool.kbuf[sl], pool.ubuf[sl], pool.w[sl] = kbuf, ubuf, w
pool.gbuf[sl] = gbuf
pool.pcum[sl] = pcum
pool.hcnt[sl] = L
idx = torch.arange(1, B + 1, dtype=torch.int32, device="cuda")
op.flush_inplace(pool, idx, q0)       # checkpoint stays in pool; returns None
"""

DIFFERENCES = {
    "kda": {},
    "gdn": {
        "gbuf = torch.ones_like(kbuf, dtype=torch.float16)\n": "",
        'pcum = torch.zeros(B, H, K, device="cuda")': 'p = torch.rand(B, H, device="cuda")',
        "ubuf, gbuf, w, pcum, q0": "ubuf, w, p, q0",
        "pool.gbuf[sl] = gbuf\n": "",
        "pool.pcum[sl] = pcum": "pool.p[sl] = p[..., None]",
    },
}


def code(gate):
    text = RUN + POOL
    for published, ours in DIFFERENCES[gate.name].items():
        assert published in text
        text = text.replace(published, ours)
    return text


def execute(gate, op, device):
    names = {"torch": torch, "op": op}
    exec(compile(code(gate).replace('"cuda"', f'"{device}"'), "<published example>", "exec"), names)
    new, pool, sl = [names[f"new_{name}"] for name in CHECKPOINT], names["pool"], names["sl"]
    assert all(torch.equal(a, b) for a, b in zip(new, checkpoint(pool, sl), strict=True))
    assert is_reset(pool, slice(None))
    assert (pool.hcnt[sl] == 16).all() and (pool.hcnt[0] == 0).all()
    assert new[0].any() and pool.errors() == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_runs_from_the_package(gate, device):
    make_library(f"torch-{device}")
    execute(gate, gate.op, device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_runs_from_the_kernel_hub(gate, device, monkeypatch):
    """With the folder that the component `hub` was installed to, LQ_TEST_HUB, in the place of a download."""
    make_library(f"torch-{device}")
    hub = Path(os.environ.get("LQ_TEST_HUB", "/nowhere"))
    need(find_spec("kernels"), "kernels package", "LQ_REQUIRE_HUB")
    need(list(hub.glob(f"build/*-{'cpu' if device == 'cpu' else 'cu[0-9]'}*")), f"{device} variant", "LQ_REQUIRE_HUB")
    monkeypatch.setenv("LOCAL_KERNELS", f"humanfia-lab/leapquant={hub}")
    names = {}
    exec(LOAD[device].replace(".kda", f".{gate.name}"), names)
    execute(gate, names["op"], device)
