# SPDX-License-Identifier: Apache-2.0
"""Inputs of flush and step: the published families of each gate, drawn in the array library under test."""

import numpy as np
import reference

CHECKPOINT = ("codes", "s_k", "s_v", "u", "q")
WINDOWS = {"kda": ("kbuf", "ubuf", "gbuf", "w", "pcum"), "gdn": ("kbuf", "ubuf", "w", "p")}
INPUTS = {gate: (*CHECKPOINT, *window, "q0") for gate, window in WINDOWS.items()}
TOKEN = ("qx", "kx", "vx", "a", "b", "A_log", "dt_bias")
STEP_INPUTS = {gate: (*CHECKPOINT, *window, "h", *TOKEN) for gate, window in WINDOWS.items()}
DIM, WINDOW = 128, 16

# What an edge head multiplies the drawn numbers by, and how many of its entries count.
EDGES = np.array(
    [  # codes, s_k, u, q, kbuf, ubuf, live entries, added to pcum
        (1, 1, 1, 1, 1, 1, 16, 0),  # an ordinary head
        (0, 1, 0, 0, 1, 1, 1, 0),  # rank 1
        (0, 1, 0, 0, 0, 0, 0, 0),  # all zero
        (0, 1, 0, 0, 1, 1, 2, 0),  # rank 2
        (1, 1e-4, 1e-2, 1, 1, 1e-4, 16, 0),  # tiny
        (1, 3e2, 17, 1, 1, 3e2, 16, 0),  # huge
        (1, 1e-6, 0, 0, 1, 1, 1, 0),  # rank 1 and faint codes
        (1, 1, 1, 1, 1, 1, 16, -200),  # strongly decayed
        (1, 1, 1, 1, 1, 1, 16, 0),  # some channels never decay
    ],
    np.float32,
)
UNDECAYED_EDGE, UNDECAYED_CHANNELS, LOUD_ROW = 8, 32, 5
EDGE_COUNTS = {"kda": len(EDGES), "gdn": 7}  # the last two are of channels that decay on their own


def edges(gate, batch, heads):
    """The edge of every program: by head, or spread over the batch where heads are few."""
    programs, count = np.arange(batch * heads).reshape(batch, heads), EDGE_COUNTS[gate]
    if heads < count:
        return programs % count
    return np.where(programs % heads < count, programs % heads, 0)


def edge_factors(library, edge):
    """A column of the table for every program, each [B, H, 1]."""
    return [library.from_numpy(EDGES[edge, column])[..., None] for column in range(EDGES.shape[1])]


def channel_decay(library, edge, live):
    """KDA: gates, weights and log-decay of a structured window."""
    batch, heads = edge.shape
    shape = (batch, heads, WINDOW, DIM)
    gbuf = library.cast(library.uniform(0.6, 1, *shape), "float16")
    gates = library.cast(gbuf, "float32")
    added = library.from_numpy(EDGES[edge, -1])[..., None]
    pcum = library.xp.log(gates).sum(-2) - library.uniform(0, 0.5, batch, heads, DIM) + added
    undecayed = library.from_numpy(edge == UNDECAYED_EDGE)[..., None] & library.from_numpy(
        np.arange(DIM) < UNDECAYED_CHANNELS
    )
    gates = library.xp.where(undecayed[..., None, :], library.xp.ones_like(gates), gates)
    return {
        "gbuf": library.cast(gates, "float16"),
        "w": live,
        "pcum": library.xp.where(undecayed, library.xp.zeros_like(pcum), pcum),
    }


def head_decay(library, edge, live):
    """GDN: weights and decay of a structured window."""
    return {"w": live * library.uniform(0, 1, *edge.shape, WINDOW), "p": library.uniform(0.5, 1, *edge.shape)}


def draw_window(library, gate, batch, heads):
    edge = edges(gate, batch, heads)
    factor = edge_factors(library, edge)
    shape = (batch, heads, WINDOW, DIM)
    entries = library.from_numpy(np.arange(WINDOW, dtype=np.float32))
    live = library.cast(entries < factor[6], "float32")
    return {
        "kbuf": library.cast(library.normal(*shape) * 0.3 * factor[4][..., None], "bfloat16"),
        "ubuf": library.cast(library.normal(*shape) * 0.3 * factor[5][..., None], "bfloat16"),
        **(channel_decay if gate == "kda" else head_decay)(library, edge, live),
    }


def draw_structured(library, gate, batch, heads, rank):
    factor = edge_factors(library, edges(gate, batch, heads))
    codes = library.xp.clip(library.xp.round(library.normal(batch, heads, DIM, DIM) * 40), -127, 127)
    s_v = library.uniform(0.1, 0.6, batch, heads, DIM)
    s_v[..., LOUD_ROW] *= 30
    return {
        "codes": library.cast(codes * factor[0][..., None], "int8"),
        "s_k": library.uniform(0.05, 0.25, batch, heads, DIM) * factor[1],
        "s_v": s_v,
        "u": library.cast(library.normal(batch, heads, rank, DIM) * 0.5 * factor[2][..., None], "float16"),
        "q": library.cast(library.normal(batch, heads, rank, DIM) * 0.5 * factor[3][..., None], "float16"),
        **draw_window(library, gate, batch, heads),
        "q0": library.normal(DIM, rank),
    }


def draw_second(library, gate, batch, heads, rank):
    """The reference's checkpoint of a structured window, with a fresh window."""
    inputs = draw_structured(library, gate, batch, heads, rank)
    checkpoint, _ = reference.flush(library, inputs, "float32")
    dtypes = ("int8", "float32", "float32", "float16", "float16")
    for name, tensor, dtype in zip(CHECKPOINT, checkpoint, dtypes, strict=True):
        inputs[name] = library.cast(tensor, dtype)
    return {**inputs, **draw_window(library, gate, batch, heads)}


def draw_random(library, gate, batch, heads, rank):
    shape = (batch, heads, WINDOW, DIM)
    codes = library.xp.round(library.uniform(-127.5, 127.5, batch, heads, DIM, DIM))
    if gate == "kda":
        decay = {
            "gbuf": library.cast(library.uniform(0.001, 1, *shape), "float16"),
            "pcum": library.uniform(-20, 0, batch, heads, DIM),
        }
    else:
        decay = {"p": library.uniform(0.001, 1, batch, heads)}
    return {
        "codes": library.cast(library.xp.clip(codes, -127, 127), "int8"),
        "s_k": 0.05 * library.xp.exp(0.7 * library.normal(batch, heads, DIM)),
        "s_v": 0.3 * library.xp.exp(0.7 * library.normal(batch, heads, DIM)),
        "u": library.cast(library.normal(batch, heads, rank, DIM), "float16"),
        "q": library.cast(library.normal(batch, heads, rank, DIM), "float16"),
        "kbuf": library.cast(library.normal(*shape), "bfloat16"),
        "ubuf": library.cast(library.normal(*shape), "bfloat16"),
        "w": library.uniform(0, 1, batch, heads, WINDOW),
        **decay,
        "q0": library.normal(DIM, rank),
    }


FAMILIES = {"structured": draw_structured, "second": draw_second, "random": draw_random}


def partly_filled(library, inputs):
    """The inputs with h entries in each window, and what is behind these empty."""
    h = library.cast(library.uniform(0, WINDOW, *inputs["w"].shape[:2]), "int32")
    live = library.from_numpy(np.arange(WINDOW, dtype=np.int32)) < h[..., None]
    partly = {**inputs, "h": h, "w": inputs["w"] * live}
    if "gbuf" in inputs:
        partly["gbuf"] = library.xp.where(live[..., None], inputs["gbuf"], library.xp.ones_like(inputs["gbuf"]))
    return partly


def draw_step(library, gate, batch, heads, key_heads, rank):
    """A structured checkpoint and window of which h entries are taken, and a token."""
    inputs = partly_filled(library, draw_structured(library, gate, batch, heads, rank))
    del inputs["q0"]
    channels = (DIM,) if gate == "kda" else ()
    token = {
        "qx": library.normal(batch, key_heads, DIM),
        "kx": library.normal(batch, key_heads, DIM),
        "vx": library.normal(batch, heads, DIM),
        "a": library.normal(batch, heads, *channels),
        "b": 2 * library.normal(batch, heads),
    }
    return {
        **inputs,
        "kbuf": library.cast(library.normal(batch, heads, WINDOW, DIM) * 0.1, "bfloat16"),
        **{name: library.cast(array, "bfloat16") for name, array in token.items()},
        "A_log": library.xp.log(library.uniform(0.5, 2, heads)),
        "dt_bias": 0.5 * library.normal(heads, *channels) - 1,
    }
