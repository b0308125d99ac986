"""A stage graph and random numbers for the compiled moves of simulated annealing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ilp_planner.base.kernels import inner, kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Arcs(NamedTuple):
    """A stage graph with arcs sorted by tail, then head, that go to higher nodes.

    head, tail: int64 [arcs]. time, extra: float64 [arcs], seconds. peaks: float64 [K, arcs],
    seconds. use: int64 [arcs, D]; capacity: int64 [D], devices. first: int64 [nodes + 1], the start
    of each node's arcs. sources: bool [nodes]. weight: of the slowest stage.
    """

    head: NDArray[np.int64]
    tail: NDArray[np.int64]
    time: NDArray[np.float64]
    extra: NDArray[np.float64]
    peaks: NDArray[np.float64]
    use: NDArray[np.int64]
    capacity: NDArray[np.int64]
    first: NDArray[np.int64]
    sources: NDArray[np.bool_]
    sink: int
    weight: float


class Kinds(NamedTuple):
    """Groups that use the same devices are of one kind.

    arcs: int64 [arcs], sorted by tail, then kind. of: int64 [arcs], kind of each. keys: int64
    [kinds], ascending; they add up like the devices of kinds; none: groups are not exchanged.
    """

    arcs: NDArray[np.int64]
    of: NDArray[np.int64]
    keys: NDArray[np.int64]


class Room(NamedTuple):
    """Arrays that cuts are found in.

    value: float64 [2, nodes]. stamp: int64 [nodes + 1], the last entry counts. into: int64 [stages,
    nodes]. active: int64 [2, nodes].
    """

    value: NDArray[np.float64]
    stamp: NDArray[np.int64]
    into: NDArray[np.int64]
    active: NDArray[np.int64]


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
