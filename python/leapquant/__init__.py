# SPDX-License-Identifier: Apache-2.0
"""Quantized recurrent state for linear attention.

`leapquant.kda` holds the operations for Kimi Delta Attention (Kimi-Linear), `leapquant.gdn` those for Gated DeltaNet
(Qwen3-Next, Qwen3.5). `python -m leapquant` is the program.
"""

from . import gdn, kda
from ._native import __version__

__all__ = ["__version__", "gdn", "kda"]
