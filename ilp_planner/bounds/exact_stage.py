"""The fastest legal way to run one stage: exact, by labels between a Lagrangian bound and an
incumbent.

What the memory rule has of maxima is enumerated: stages are classed by their largest recompute
run. A class is first
bounded by the best price of memory, which also gives a way to run the stage; classes that this
does not close are
searched with labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.bounds.labels import grow
from ilp_planner.bounds.prices import search_price
from ilp_planner.bounds.sweep import INFINITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ilp_planner.bounds.sweep import Chain

MEMORY_ROUNDING = 5e-10  # relative: what rounding to the grid may add up to
BEAM = 200
CLASSES = 6
RUN_STEP, RUN_CLASSES = 1.2, 9
SMALLEST_CLASS = 0.02  # of the largest: below, a class would gain nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class StageOptimum:
    """bound: seconds, no legal way is faster. time: seconds of the best way found (INFINITE: none
    below the cutoff).

    choices: option per operator; flags: recomputed?. exact: bound and time meet, or nothing below
    the cutoff exists.
    """

    bound: float
    time: float
    choices: NDArray[np.int64]
    flags: NDArray[np.bool_]
    exact: bool


def solve_stage(
    chain: Chain,
    start: int,
    stop: int,
    *,
    in_flight: int,
    limit: float,
    enters_node: bool,
    leaves_node: bool,
    cutoff: float,
    effort: int,
) -> StageOptimum:
    """Find the fastest way below `cutoff` seconds to run operators [start, stop) within `limit`
    bytes.

    effort caps the elementary label operations (some 1e8 a second); 0: prices only, no labels.
    With `exact` the answer is final: `bound` is the optimum, or at least `cutoff` when nothing
    faster exists.
    """
    tables = chain.tables
    part = slice(start, stop)
    room = limit * (1 + MEMORY_ROUNDING)
    choices = np.zeros(stop - start, np.int64)
    flags = np.zeros(stop - start, np.bool_)
    best, bound, spent, exact = INFINITE, INFINITE, 0, True
    operators = (
        chain.compute[part], chain.recompute[part], chain.activations[part], chain.weights[part],
        chain.input[start], chain.forward_reserved[part], chain.backward_reserved[part],
        chain.enter[int(enters_node), start],
    )  # fmt: skip
    memory = (float(in_flight), tables.state_factor, tables.weight_floor, room)
    jobs: list[tuple[Any, ...]] = []  # (bound, ends, most, least, price)
    for degree in range(chain.leave.shape[3]):
        leave = np.ascontiguousarray(chain.leave[int(leaves_node), stop - 1, :, degree])
        ends = (leave, np.ascontiguousarray(tables.degree == degree))
        for most, least in _pair_classes(chain, start, stop):
            ways, rcs = np.zeros_like(choices), np.zeros_like(flags)
            time, price, root = search_price(
                *operators, *ends, chain.reshard, tables.pair[part], chain.free, tables.saves[part],
                tables.closes[part], tables.shared[part], *memory, most, least, ways, rcs,
            )  # fmt: skip
            if time < best:
                best, choices, flags = time, ways, rcs
            if price == 0.0 and most == np.inf:  # memory does not bind: nothing is faster
                jobs = [job for job in jobs if job[1] is not ends]
                bound = min(bound, time)
            else:
                jobs.append((root, ends, most, least, price))
    for width in (BEAM, 0):
        for root, ends, most, least, price in sorted(jobs, key=lambda job: job[0]):
            ways, rcs = np.zeros_like(choices), np.zeros_like(flags)
            stop_at = min(best, cutoff)
            if root >= stop_at:
                continue
            if effort == 0:
                exact, bound = False, min(bound, root)
                continue
            time, low, complete, work = grow(
                *operators, *ends, chain.reshard, tables.pair[part], chain.free, chain.alike[part],
                tables.saves[part], tables.closes[part], tables.shared[part], *memory, most, least,
                price, stop_at, effort - spent, width, ways, rcs,
            )  # fmt: skip
            if time < best:
                best, choices, flags = time, ways, rcs
            spent = min(spent + work, effort)
            if width == 0:
                exact &= complete
                bound = min(bound, low)
    if exact:  # every class was searched, or cannot hold anything below the cutoff
        bound = min(best, cutoff)
    return StageOptimum(
        bound=min(bound, best), time=best, choices=choices, flags=flags, exact=exact
    )


def _pair_classes(chain: Chain, start: int, stop: int) -> list[tuple[float, float]]:
    """Return (most, least) bytes that one recomputed pair keeps: every stage is in one of the
    classes."""
    if stop - start >= 2 and chain.tables.shared[stop - 2]:
        return [(np.inf, 0.0)]  # the last run of such a stage may be dropped, whatever its size
    usable = chain.compute[start : stop - 1] < INFINITE
    sizes = np.unique(chain.activations[start : stop - 1][usable])
    if sizes.size == 0:
        return [(np.inf, 0.0)]
    sizes = sizes[sizes >= sizes[-1] * SMALLEST_CLASS]
    edges = (
        sizes
        if sizes.size <= CLASSES
        else sizes[np.linspace(0, sizes.size - 1, CLASSES).astype(int)]
    )
    # a run of small outputs can lie anywhere above the previous class
    least = [0.0, *(float(edge) for edge in edges[:-1])]
    runs = [float(edges[-1]) * RUN_STEP**x for x in range(1, RUN_CLASSES + 1)]
    most = [*(float(edge) for edge in edges), *runs[:-1], np.inf]
    return list(zip(most, [*least, float(edges[-1]), *runs[:-1]], strict=True))
