# SPDX-License-Identifier: Apache-2.0
"""Quantized recurrent state for linear attention.

`leapquant.kda` holds the operations for Kimi Delta Attention. `python -m leapquant` is the program.
"""

from . import kda
from ._native import __version__

__all__ = ["__version__", "kda"]
