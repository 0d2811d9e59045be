# SPDX-License-Identifier: Apache-2.0
"""Flush and step as docs/format.md states them, in NumPy or PyTorch, in any precision."""

LARGEST_HALF = 65504.0


def outer(column, row):
    return column[..., :, None] * row[..., None, :]


def decode(xp, checkpoint):
    codes, s_k, s_v, u, q = checkpoint
    return xp.einsum("bhrv,bhrk->bhvk", q, u) + codes * outer(s_v, s_k / 127)


def rebuild(xp, inputs):
    """Step 1: the state [B, H, V, K], by the gate whose decay stands among the inputs."""
    state = decode(xp, [inputs[name] for name in ("codes", "s_k", "s_v", "u", "q")])
    if "p" in inputs:
        updates = inputs["ubuf"] * inputs["w"][..., None]
        return state * inputs["p"][..., None, None] + xp.einsum("bhjv,bhjk->bhvk", updates, inputs["kbuf"])
    state = state * xp.exp(inputs["pcum"])[..., None, :]
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
    rate = xp.exp(inputs["A_log"]).reshape(-1, *[1] * (inputs["dt_bias"].ndim - 1))
    return -rate * xp.log1p(xp.exp(x)) if lower_bound is None else lower_bound / (1 + xp.exp(-rate * x))


def normalised(xp, x):
    return x / xp.sqrt((x * x).sum(-1) + 1e-6)[..., None]


def decayed(xp, inputs, gate):
    """The window after the token's gate, what is behind its entries empty, and the state it stands for."""
    position = xp.cumsum(xp.ones_like(inputs["w"]), -1) - 1
    live, entry = position < inputs["h"][..., None], position == inputs["h"][..., None]
    window = {**inputs, "w": inputs["w"] * live}
    if "p" in inputs:
        decay = xp.exp(gate)
        weights = xp.where(live, inputs["w"] * decay[..., None], inputs["w"])
        changed = {"w": weights, "p": inputs["p"] * decay}
        state = rebuild(xp, {**window, "w": weights * live, "p": changed["p"]})
    else:
        window["gbuf"] = xp.where(live[..., None], inputs["gbuf"], xp.ones_like(inputs["gbuf"]))
        changed = {"gbuf": xp.exp(gate), "w": inputs["w"], "pcum": inputs["pcum"] + gate}
        state = rebuild(xp, window) * changed["gbuf"][..., None, :]
    return {**changed, "w": xp.where(entry, xp.ones_like(inputs["w"]), changed["w"])}, state


def step(library, inputs, dtype, lower_bound=None):
    """What a step returns, less the rounding of its results."""
    xp = library.xp
    cast = {name: library.cast(array, dtype) for name, array in inputs.items()}
    changed, state = decayed(xp, cast, log_gate(xp, cast, lower_bound))
    heads, key_heads = cast["vx"].shape[1], cast["kx"].shape[1]
    key_head = [head // (heads // key_heads) for head in range(heads)]
    key = normalised(xp, cast["kx"])[:, key_head]
    query = normalised(xp, cast["qx"])[:, key_head] * key.shape[-1] ** -0.5
    beta = library.cast(library.cast(1 / (1 + xp.exp(-cast["b"])), "bfloat16"), dtype)[..., None]
    update = beta * (cast["vx"] - (state @ key[..., None])[..., 0])
    output = (state @ query[..., None])[..., 0] + (key * query).sum(-1)[..., None] * update
    return output, key, update, *changed.values()
