"""Random numbers for compiled annealing.

Each start has a generator of its own, so that its draws do not depend on threads.
"""

from __future__ import annotations

import numpy as np

from ilp_planner.base.kernels import inner, kernel

INFINITE = np.inf


@kernel
def chance(state):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return a number from 0 to below 1 and step the generator (xorshift64*: Vigna, "An
    experimental exploration of Marsaglia's xorshift generators, scrambled", 2016).

    state: uint64 [1], not 0.
    """
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return float((x * np.uint64(2685821657736338717)) >> np.uint64(11)) / 9007199254740992.0


@inner
def between(state, low, high):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Draw from low to high, every order of magnitude alike."""
    return low * (high / low) ** chance(state)
