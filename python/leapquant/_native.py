# SPDX-License-Identifier: Apache-2.0
"""The tvm-ffi module: the C interface, as functions that take arrays."""

from pathlib import Path

import tvm_ffi

_module = tvm_ffi.load_module(str(Path(__file__).parent / "lib" / "leapquant_tvm_ffi.so"))

# Bound once: looking a function up costs more than an in-place flush.
flush = _module.flush
flush_inplace = _module.flush_inplace
flush_now = _module.flush_now
step = _module.step
step_inplace = _module.step_inplace
step_flush_inplace = _module.step_flush_inplace
draft_bytes = _module.draft_bytes
draft = _module.draft
commit = _module.commit
reset_slots = _module.reset_slots
copy_slots = _module.copy_slots
import_state = _module.import_state
export_state = _module.export_state
pool_raw_elements = _module.pool_raw_elements
pool_create = _module.pool_create
pool_views = _module.pool_views
pool_check_indices = _module.pool_check_indices
pool_errors = _module.pool_errors
default_geometry = _module.default_geometry

__version__ = str(_module.version())
