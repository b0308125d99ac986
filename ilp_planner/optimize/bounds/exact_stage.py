"""The fastest legal configuration of one stage, exactly: labels between a Lagrangian bound and a
time.

Maxima of the memory rule are enumerated: stages are classed by their largest recompute run. A class
is first bounded by the best Lagrange multiplier of memory, which also gives a configuration of the
stage; classes that this does not close are searched with labels.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from ilp_planner.base.kernels import compile_beside, compiled_beside
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.labels import Search, grow, least_reserved, look_ahead
from ilp_planner.optimize.bounds.prices import Ends, search_price
from ilp_planner.optimize.bounds.sweep import Chain, Memory, Operators

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray


A = TypeVar("A")
B = TypeVar("B")
MEMORY_ROUNDING = 5e-10  # relative: what rounding to the grid may add up to
BEAM = 200
CLASSES = 6
RUN_STEP, RUN_CLASSES = 1.2, 9
SMALLEST_CLASS = 0.02  # of the largest: below, a class would gain nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class StageOptimum:
    """Bounds on the fastest configuration of a stage.

    bound: seconds, no legal configuration is faster. time: seconds of the best configuration found,
    INFINITE if none is below the cutoff. choices: option per operator; flags: recomputed? exact:
    bound and time meet, or nothing below the cutoff exists. open: classes that multipliers did not
    settle; floors: lower bounds in seconds of the open classes, by number. searched: labels have
    looked.
    price: seconds per byte, the best one of the class with the least bound; 0 if none is known.
    """

    bound: float
    time: float
    choices: NDArray[np.int64]
    flags: NDArray[np.bool_]
    exact: bool
    open: tuple[Job, ...]
    floors: Mapping[int, float]
    searched: bool
    price: float


class Ceilings(NamedTuple):
    """A class of stages, by the bytes that one recomputed pair keeps, at most and at least."""

    pair_most: float = np.inf
    pair_least: float = 0.0


class Job(NamedTuple):
    """A class of stages that multipliers leave open, and the best multiplier."""

    number: int
    ends: Ends
    ceilings: Ceilings
    price: float


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
    known: StageOptimum | None = None,
    workers: int = 1,
) -> StageOptimum:
    """Find the fastest configuration below `cutoff` seconds of operators [start, stop) within
    `limit` bytes.

    effort caps the elementary label operations (some 1e8 a second); 0: multipliers only, no labels.
    known: the earlier result of the same stage, to continue from. workers: classes that are
    searched side by side. With `exact` the answer is final: `bound` is the optimum, or at least
    `cutoff` when nothing faster exists.
    """
    compiled_beside()
    tables = chain.tables
    part = slice(start, stop)
    operators, alike = chain.operators.only(part), chain.alike[part]
    memory = Memory(
        in_flight=float(in_flight),
        factor=float(tables.state_factor),
        floor=tables.weight_floor,
        limit=limit * (1 + MEMORY_ROUNDING),
    )
    reserved = least_reserved(operators)
    priced = known or price_classes(chain, start, stop, memory, enters_node, leaves_node)
    jobs, floors = priced.open, dict(priced.floors)
    best, path = priced.time, 2 * priced.choices + priced.flags  # states, as in `prices`
    spent, exact = 0, True

    def attempt(job: Job) -> tuple[NDArray[np.int64], float, float, bool, int]:
        way, most = np.zeros_like(path), job.ceilings.pair_most
        ahead = look_ahead(operators, job.ends.leave, memory, most, job.price, reserved)
        search = Search(float(stop_at), effort - spent, width)
        return way, *grow(
            operators, job.ends, memory, job.ceilings, alike, ahead, search, way
        )  # fmt: skip

    for width in (0,) if priced.searched else (BEAM, 0):
        left = sorted(jobs, key=lambda job: floors[job.number])
        while left:
            stop_at = min(best, cutoff)
            left = [job for job in left if floors[job.number] < stop_at]
            if effort == 0:
                exact &= not left
                break
            batch, left = left[:workers], left[workers:]
            for job, (way, time, low, complete, work) in zip(
                batch, side_by_side(attempt, batch), strict=True
            ):
                if time < best:
                    best, path = time, way
                spent = min(spent + work, effort)
                floors[job.number] = max(floors[job.number], low)
                exact &= complete or width > 0
    bound = min([best, *floors.values()])
    if exact:  # every class was searched, or cannot hold anything below the cutoff
        bound = min(best, cutoff)
    return replace(
        priced, bound=bound, time=best, choices=path >> 1, flags=path & 1 == 1, exact=exact,
        floors=floors, searched=priced.searched or effort > 0,
    )  # fmt: skip


def price_classes(
    chain: Chain, start: int, stop: int, memory: Memory, enters_node: bool, leaves_node: bool
) -> StageOptimum:
    """Return the bounds of memory multipliers for a stage, and their best configuration."""
    operators = chain.operators.only(slice(start, stop))
    reserved = least_reserved(operators)
    least = float(reserved[0, 0]) + float(reserved[1, 0])
    path = np.zeros(stop - start, np.int64)  # states, as in `prices`
    best = INFINITE
    jobs: list[Job] = []
    floors: dict[int, float] = {}
    for degree in range(chain.leave.shape[3]):
        ends = Ends(
            inputs=chain.input[start],
            enter=chain.enter[int(enters_node), start],
            leave=np.ascontiguousarray(chain.leave[int(leaves_node), stop - 1, :, degree]),
            first=np.ascontiguousarray(chain.tables.degree == degree),
        )
        for ceilings in _pair_classes(chain, start, stop):
            way = np.zeros_like(path)
            room = memory.limit - ceilings.pair_least - least
            time, price, root = search_price(operators, ends, memory, ceilings.pair_most, room, way)
            if time < best:
                best, path = time, way
            if price == 0.0 and ceilings.pair_most == np.inf:  # memory does not bind
                jobs = [job for job in jobs if job.ends is not ends]
            else:
                jobs.append(Job(len(floors), ends, ceilings, price))
            floors[len(floors)] = root
    floors = {job.number: floors[job.number] for job in jobs}
    weakest = min(jobs, key=lambda job: floors[job.number], default=None)
    return StageOptimum(
        bound=min([best, *floors.values()]), time=best, choices=path >> 1,
        flags=path & 1 == 1, exact=False, open=tuple(jobs), floors=floors,
        searched=False, price=0.0 if weakest is None else max(0.0, weakest.price),
    )  # fmt: skip


def side_by_side(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """Call a function that spends its time in kernels for all items, each in a thread."""
    if len(items) < 2:
        return [function(item) for item in items]
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(function, items))


def compile_ahead() -> None:
    """Compile the kernels that `solve_stage` calls, by a stage of two operators."""
    table, flags = np.ones((2, 1)), np.zeros(2, np.bool_)
    operators = Operators(
        *(table,) * 6, pair=np.zeros(2, np.int64), reshard=np.zeros((1, 1, 1)),
        free=np.ones(1, np.bool_), saves=flags, closes=flags, shared=flags,
    )  # fmt: skip
    ends = Ends(table[0], table[0], table[0], first=np.ones(1, np.bool_))
    memory, path = Memory(1.0, 1.0, floor=False, limit=INFINITE), np.zeros(2, np.int64)
    search_price(operators, ends, memory, np.inf, memory.limit, path)
    ahead = look_ahead(operators, ends.leave, memory, np.inf, 0.0, least_reserved(operators))
    alike, search = np.zeros((2, 1), np.int64), Search(INFINITE, BEAM, BEAM)
    grow(operators, ends, memory, Ceilings(), alike, ahead, search, path)


compile_beside(__name__)


def _pair_classes(chain: Chain, start: int, stop: int) -> list[Ceilings]:
    """Return classes by the bytes that one recomputed pair keeps: every stage is in one of them."""
    if stop - start >= 2 and chain.tables.shared[stop - 2]:
        return [Ceilings()]  # the last run of such a stage may be dropped, whatever its size
    usable = chain.operators.compute[start : stop - 1] < INFINITE
    sizes = np.unique(chain.operators.activations[start : stop - 1][usable])
    if sizes.size == 0:
        return [Ceilings()]
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
    least += [float(edges[-1]), *runs[:-1]]
    return [Ceilings(pair_most=m, pair_least=p) for m, p in zip(most, least, strict=True)]
