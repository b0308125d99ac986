"""A limit on the address space (`ulimit -v`), and help for numerical libraries under it."""

from __future__ import annotations

import os
import resource

from ilp_planner.base.errors import PlannerError
from ilp_planner.base.units import format_bytes

LEAST = 512 * 2**20
"""Bytes with which a first solve, which compiles the kernels, has ended well. With less, libraries
end the process in messages of their own, or wait for ever for memory that nobody gives back."""
BLOCK = 1024  # bytes that `ulimit` counts in


def fit_address_space() -> None:
    """Let libraries that are imported from now on ask for little of an address space that is
    limited: OpenBLAS maps 32 MB for each core, and spins at its import if it gets none.

    Raises
    ------
    PlannerError: there is too little for any library.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if limit < LEAST:
        raise PlannerError(
            f"address space: found a limit of {format_bytes(limit)}, expected at least "
            f"{format_bytes(LEAST)} (`ulimit -v {LEAST // BLOCK}`); what a search may hold is "
            "bounded by `solve --max-memory`"
        )
