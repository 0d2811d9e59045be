# SPDX-License-Identifier: Apache-2.0
"""The accuracy criterion of the published benchmark, over `run`, and the stricter one of this project beside it.

With S the state in double, err = mean |decode(result) - S| over a program. Where the reference's error is at least 1e-4
of mean |S|, err may be 1.01 of it; elsewhere 1e-3 of mean |S|. Strict: for every program. Averaged, as published: for
every head's means over the batch.
"""

from typing import NamedTuple

import reference

CHUNK = 32  # sequences that are judged at a time: the state in double is 16 MiB each, and there are several


class Figures(NamedTuple):
    finite: bool
    strict_ratio: float  # largest err / err_ref where the relative bound holds
    strict_use: float  # largest share of its bound that a program uses
    averaged_use: float  # the same of a head's averages


def program_errors(library, inputs, result):
    """(mean |S|, err_ref, err, well formed), each [B, H]."""
    xp = library.xp
    exact, state = reference.flush(library, inputs, "float64")
    rounded, _ = reference.flush(library, inputs, "float32")

    def error(checkpoint):
        cast = [library.cast(tensor, "float64") for tensor in checkpoint]
        return abs(reference.decode(xp, cast) - state).mean((-1, -2))

    err_single, err_double, err = error(rounded), error(exact), error(result)
    single_is_worse = ~(err_single <= err_double)  # or not finite
    well_formed = xp.isfinite(err) & (abs(library.cast(result[0], "float32")).reshape(*err.shape, -1) <= 127).all(-1)
    return abs(state).mean((-1, -2)), xp.where(single_is_worse, err_double, err_single), err, well_formed


def bound_use(xp, size, err_ref, err):
    """(err / err_ref where the relative bound holds, else 0; err / bound)."""
    relative = (err_ref >= 1e-4 * size) & (err_ref > 0)
    bound = xp.where(relative, 1.01 * err_ref, 1e-3 * size)
    nothing = (bound == 0) & (err == 0)
    one = xp.ones_like(err)
    use = xp.where(nothing, 0 * one, err / xp.where(nothing, one, bound))
    return xp.where(relative, 1.01 * use, 0 * one), use


def judge(library, inputs, result):
    xp = library.xp
    batch = inputs["codes"].shape[0]
    columns = ([], [], [], [])
    for first in range(0, batch, CHUNK):
        part = {name: array if name == "q0" else array[first : first + CHUNK] for name, array in inputs.items()}
        errors = program_errors(library, part, [tensor[first : first + CHUNK] for tensor in result])
        for column, values in zip(columns, errors, strict=True):
            column.append(values)
    size, err_ref, err, well_formed = (xp.concatenate(column, 0) for column in columns)
    ratio, use = bound_use(xp, size, err_ref, err)
    _, averaged = bound_use(xp, size.mean(0), err_ref.mean(0), err.mean(0))
    return Figures(bool(well_formed.all()), float(ratio.max()), float(use.max()), float(averaged.max()))
