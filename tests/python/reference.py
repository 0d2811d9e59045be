# SPDX-License-Identifier: Apache-2.0
"""Flush and step as docs/format.md states them, in NumPy or PyTorch, in any precision."""

LARGEST_HALF = 65504.0


def outer(column, row):
    return column[..., :, None] * row[..., None, :]


def decode(xp, checkpoint):
    codes, s_k, s_v, u, q = checkpoint
    return xp.einsum("bhrv,bhrk->bhvk", q, u) + codes * outer(s_v, s_k / 127)


def rebuild(xp, inputs):
    """Step 1: the state [B, H, V, K]."""
    state = (
        decode(xp, [inputs[name] for name in ("codes", "s_k", "s_v", "u", "q")]) * xp.exp(inputs["pcum"])[..., None, :]
    )
    decay = xp.ones_like(inputs["pcum"])
    for j in reversed(range(inputs["w"].shape[-1])):
        update = inputs["ubuf"][..., j, :] * inputs["w"][..., j, None]
        state = state + outer(update, inputs["kbuf"][..., j, :] * decay)
        decay = decay * inputs["gbuf"][..., j, :]
    return state


def orthonormal(xp, matrix):
    """Gram-Schmidt over the columns, each projection twice."""
    columns = []
    for r in range(matrix.shape[-1]):
        column = matrix[..., r]
        for other in columns * 2:
            column = column - other * (other * column).sum(-1)[..., None]
        norm = xp.sqrt((column * column).sum(-1))
        columns.append(column / xp.clip(norm, 1e-30, None)[..., None])
    return xp.stack(columns, -1)


def quantize(xp, state, q0, to_half):
    """Steps 2 and 3: the new checkpoint, every tensor in the state's dtype."""
    transposed = xp.swapaxes(state, -1, -2)
    basis = orthonormal(xp, transposed @ q0)
    value_basis = orthonormal(xp, state @ basis)
    key_factor = transposed @ value_basis
    u, q = (to_half(xp.clip(xp.swapaxes(m, -1, -2), -LARGEST_HALF, LARGEST_HALF)) for m in (key_factor, value_basis))
    residual = state - xp.einsum("bhrv,bhrk->bhvk", q, u)
    s_k = xp.clip(xp.sqrt(abs(residual).mean(-2)), 1e-12, None)
    s_v = xp.clip(xp.amax(abs(residual) / s_k[..., None, :], -1), 1e-12, None)
    codes = xp.clip(xp.round(residual / outer(s_v, s_k) * 127), -127, 127)
    return codes, s_k, s_v, u, q


def flush(library, inputs, dtype):
    """The checkpoint that the formulas give in `dtype`, and the state it was made of."""
    xp = library.xp
    cast = {name: library.cast(array, dtype) for name, array in inputs.items()}
    state = rebuild(xp, cast)
    return quantize(xp, state, cast["q0"], lambda m: library.cast(library.cast(m, "float16"), dtype)), state


def log_gate(xp, inputs, lower_bound):
    x = inputs["a"] + inputs["dt_bias"]
    rate = xp.exp(inputs["A_log"])[:, None]
    return -rate * xp.log1p(xp.exp(x)) if lower_bound is None else lower_bound / (1 + xp.exp(-rate * x))


def normalised(xp, x):
    return x / xp.sqrt((x * x).sum(-1) + 1e-6)[..., None]


def step(library, inputs, dtype, lower_bound=None):
    """What kda.step returns, less the rounding of its results."""
    xp = library.xp
    cast = {name: library.cast(array, dtype) for name, array in inputs.items()}
    position = xp.cumsum(xp.ones_like(cast["w"]), -1) - 1
    live, entry = position < cast["h"][..., None], position == cast["h"][..., None]
    decay = xp.exp(gate := log_gate(xp, cast, lower_bound))
    masked = {
        **cast,
        "w": cast["w"] * live,
        "gbuf": xp.where(live[..., None], cast["gbuf"], xp.ones_like(cast["gbuf"])),
    }
    state = rebuild(xp, masked) * decay[..., None, :]
    key = normalised(xp, cast["kx"])
    query = normalised(xp, cast["qx"]) * key.shape[-1] ** -0.5
    beta = library.cast(library.cast(1 / (1 + xp.exp(-cast["b"])), "bfloat16"), dtype)[..., None]
    update = beta * (cast["vx"] - (state @ key[..., None])[..., 0])
    output = (state @ query[..., None])[..., 0] + (key * query).sum(-1)[..., None] * update
    weights = xp.where(entry, xp.ones_like(cast["w"]), cast["w"])
    return output, key, update, decay, weights, cast["pcum"] + gate
