"""One part of the search: all plans with one micro-batch size, and their bounds.

The slowest possible pipeline: a bound above this proves infeasibility.

The basis of the bound of a part of operators, for its certificate and back.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ilp_planner.base.errors import PlanError
from ilp_planner.base.limits import SECONDS
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.exact_stage import side_by_side
from ilp_planner.optimize.bounds.fewest import FewestBehind
from ilp_planner.optimize.bounds.paths import best_path
from ilp_planner.optimize.bounds.pipeline import Landscape, steps
from ilp_planner.optimize.bounds.pipelines import fewest_before
from ilp_planner.optimize.bounds.stages import EXACT, FORBIDDING_PRICE, StageBounds, StageKey, Way
from ilp_planner.plan import OperatorPlan, OperatorStage, Plan
from ilp_planner.schedule.formulas import OneForwardOneBackward

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ilp_planner.costs.operators import OperatorTables, StageTables
    from ilp_planner.inputs.problem import Problem
    from ilp_planner.optimize.bounds.pipeline import Step
    from ilp_planner.optimize.bounds.pipelines import OpenStages, Pipelines, Place


# ---- operator proof ------------------------------------------------------------------------------


class Proof(NamedTuple):
    """The basis of a bound: the counting of downstream stages and micro-batches in flight, the
    multipliers tried and the stages solved exactly. slowest: seconds that the slowest stage takes
    at least."""

    counted: bool
    digits: int
    slowest: float
    prices: tuple[tuple[int, int, float], ...]
    exact: dict[StageKey, Way]

    def record(self, *, stages: bool) -> dict[str, Any]:
        """Return the content for a certificate, with the stages if the bound needs them."""
        ways = sorted(self.exact.items(), key=lambda item: item[0]) if stages else []
        return {
            "counted": self.counted,
            "digits": self.digits,
            "slowest_s": self.slowest,
            "prices": [
                {"devices": devices, "in_flight": in_flight, "seconds_per_byte": price}
                for devices, in_flight, price in self.prices
            ],
            "exact_stages": [
                {
                    "start": way.start,
                    "stop": way.stop,
                    "devices": key.devices,
                    "in_flight": key.in_flight,
                    "enters_node": key.enters_node,
                    "leaves_node": key.leaves_node,
                    "bound_s": way.optimum.bound,
                }
                for key, way in ways
            ],
        }


def recorded_prices(record: Mapping[str, Any]) -> dict[tuple[int, int], list[float]]:
    """Return the multipliers that a certificate lists, by devices and micro-batches in flight.

    Raises
    ------
    PlanError: one of them proves nothing.
    """
    prices: dict[tuple[int, int], list[float]] = {}
    for row in record.get("prices", []):
        price = float(row["seconds_per_byte"])
        if not 0 <= price <= FORBIDDING_PRICE:
            raise PlanError(f"certificate: found a price of {price} seconds per byte")
        prices.setdefault((int(row["devices"]), int(row["in_flight"])), []).append(price)
    return prices


# ---- ceiling -------------------------------------------------------------------------------------


ROUNDING = 1e-6  # relative: far more than the error of any sum of times
LEAST = 1e-9  # seconds: a pipeline of no time at all stays below this


def slowest_pipeline(tables: Sequence[StageTables], max_stages: int) -> float:
    """Return seconds that the stages of every pipeline together stay below.

    Each operator is charged its slowest option, recomputed and after the slowest change of layout;
    and the slowest `max_stages` ones its cost of receiving and of sending, each by itself.
    """
    if not tables:
        return 0.0
    inside = np.max([_slowest_inside(group) for group in tables], axis=0)
    ends = np.max([_slowest_ends(group) for group in tables], axis=0)
    total = float(inside.sum() + np.sort(ends, axis=1)[:, -max_stages:].sum())
    return max(total * (1 + ROUNDING), LEAST)


def _slowest_inside(tables: StageTables) -> NDArray[np.float64]:
    """Return the most seconds that each operator adds to its stage ([n])."""
    work = np.where(tables.allowed, tables.compute + tables.recompute, 0.0).max(axis=1)
    change = np.where(np.isfinite(tables.reshard), tables.reshard, 0.0).max(axis=(1, 2), initial=0)
    slowest: NDArray[np.float64] = work[tables.kind]
    slowest[1:] += change[tables.pair[1:]]
    return slowest


def _slowest_ends(tables: StageTables) -> NDArray[np.float64]:
    """Return the most seconds that a stage pays to begin at, and to end with, each operator
    ([2, n])."""
    allowed = tables.allowed
    enter = np.where(allowed, tables.enter, 0.0).max(axis=(0, 2))
    leave = np.where(allowed[..., None] & np.isfinite(tables.leave), tables.leave, 0.0)
    return np.asarray(np.stack((enter, leave.max(axis=(0, 2, 3))))[:, tables.kind])


# ---- operator part -------------------------------------------------------------------------------


FIRST_EFFORT = 10_000_000  # label operations per stage, some 100 ms
EFFORT_GROWTH = 8
EFFORT_PER_SECOND = 100_000_000
FEW_STATES = 2048  # devices times stages: up to there, the stages behind are counted at once
DIGITS = 5  # binary ones of the micro-batches in flight, while stages are not counted
WIDE = 1 << 40  # more than there are bounds of one place
CONFIRM_ROUNDING = 1e-10  # relative
NEARLY = 1e-8  # relative: so near to the ceiling, which is rounded up by more, a bound is there
# Sources of a bound that rests on no exactly solved stage.
BOUNDS, SOLVED, SUMS = "stage bounds", "solved stages", "sums of stages"
WITHOUT_STAGES = ("device groups", "work", BOUNDS)


class OperatorPart:
    """Plans with one micro-batch size.

    check: called now and then, may raise. bound: seconds; no plan of this part takes less. source:
    the argument that proved it. proof: its basis. counted: whether the downstream stages of each
    stage are counted, or taken to be as few as possible. closed: nothing more can be learned about
    plans below the last cutoff. ceiling: seconds that every plan of this part stays below; a bound
    that reaches it proves that there is no plan.
    """

    def __init__(
        self,
        problem: Problem[OperatorTables],
        micro_batch: int,
        workers: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.check = check
        self.problem = problem
        self.micro_batch = micro_batch
        self.schedule = OneForwardOneBackward(problem.global_batch // micro_batch)
        self.micro_batches = self.schedule.micro_batches
        self.weight = self.schedule.weight
        self.workers = workers
        self.bound = 0.0
        self.source = ""
        self.closed = False
        self.open: OpenStages | None = None
        self.stages = StageBounds(
            problem.costs, micro_batch=micro_batch, micro_batches=self.micro_batches,
            groups=problem.space.stage_sizes(problem), limit=problem.memory_limit,
        )  # fmt: skip
        few = problem.cluster.device_count * problem.max_stages <= FEW_STATES
        self.counted, self.digits = few, EXACT if few else DIGITS
        self.proof = Proof(self.counted, self.digits, 0.0, (), {})
        self.ceiling = self.micro_batches * slowest_pipeline(
            [chain.tables for chain in self.stages.chains.values()], problem.max_stages
        )
        self._slowest = INFINITE
        self._fewest: FewestBehind | None = None
        self._names: list[StageKey] = []
        self._number = self._order = self._sorted = np.zeros(0, np.int64)
        self._low = 0.0
        self._work = 0.0

    @property
    def divisible(self) -> bool:
        """Whether the devices can be split into so few groups."""
        cluster = self.problem.cluster
        fewest = fewest_before(cluster.device_count, cluster.devices_per_node, self.stages.groups)
        return bool(fewest[-1] <= self.problem.max_stages)

    def count_stages(self) -> None:
        """Count the downstream stages from now on; proofs stay."""
        self.counted, self.digits, self.closed, self._fewest = True, EXACT, False, None

    def repeat(self, record: Mapping[str, Any]) -> None:
        """Examine stages as this part's certificate did."""
        self.counted = bool(record.get("counted", True))
        self.digits = max(1, int(record.get("digits", EXACT)))
        self.stages.prices.update(recorded_prices(record))

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every place of a stage in a pipeline, suffixes first."""
        cluster = self.problem.cluster
        return steps(
            devices=cluster.device_count, per_node=cluster.devices_per_node,
            groups=self.stages.groups, max_stages=self.problem.max_stages, check=self.check,
        )  # fmt: skip

    def pipelines(self) -> Pipelines:
        """Return the pipelines over the stages' bounds."""
        return self.landscape() if self._fewest is None else self._fewest

    def landscape(self, times: Callable[[Place], NDArray[np.float64]] | None = None) -> Landscape:
        """Return the pipelines with the downstream stages counted, over the stages' bounds or over
        other numbers for the stages."""
        return Landscape(
            operators=len(self.problem.costs.chain), devices=self.problem.cluster.device_count,
            max_stages=self.problem.max_stages, steps=self.steps, rows=self.stages.rows,
            extents=self.stages.extents, times=times or self.stages.times, check=self.check,
        )  # fmt: skip

    def raise_bound(self, bound: float, source: str) -> None:
        """Keep the better bound."""
        if bound >= min(self.ceiling * (1 - NEARLY), INFINITE * (1 - CONFIRM_ROUNDING)):
            bound = INFINITE
        if bound > self.bound:
            self.bound, self.source = bound, source
            prices = tuple(
                (*key, price) for key, all_ in self.stages.prices.items() for price in all_
            )
            exact = dict(self.stages.exact)
            self.proof = Proof(self.counted, self.stages.digits, self._low, prices, exact)

    def bound_by_work(self) -> None:
        """Bound the part by the least device-seconds of its operators, spread over all devices."""
        if not self.divisible:
            self.raise_bound(INFINITE, "device groups")
            return
        chains = self.stages.chains
        least = np.array(
            [c.operators.compute.reshape(len(c.alike), -1).min(axis=1) for c in chains.values()]
        )
        # Added up one by one: a certificate claims the last digit, too.
        work = float((least * np.array([*chains])[:, None]).min(axis=0).cumsum()[-1])
        sum_of_least = float(least.min(axis=0).cumsum()[-1])
        self._low = work / self.problem.cluster.device_count
        self._work = max(sum_of_least, self._low)
        self.raise_bound(self.weight * self._low + self._work, "work")

    def bound_by_stages(self, cutoff: float, *, coarse: bool = False) -> None:
        """Bound the part by its stages' bounds; looks only at plans below `cutoff` seconds."""
        cutoff = min(cutoff, self.ceiling)
        longest = min(cutoff / self.micro_batches, INFINITE / 10)
        self._begin(longest, 1 if coarse else self.digits)
        low, high = self.pipelines().least_slowest(self._low, longest)
        source = SOLVED if self.stages.exact else BOUNDS
        if high >= INFINITE:
            self.raise_bound(cutoff, source)
            return
        self._low = max(self._low, low)
        bound = self.weight * self._low + max(self._work, self._low)
        self.raise_bound(min(cutoff, bound), source)
        if bound < cutoff and not coarse and not self.counted:  # else the graph is small
            bound = self.pipelines().least_total(self.weight, cutoff, self._low, self._work)
            self.raise_bound(min(cutoff, bound), SUMS)
        if self._fewest is not None:
            self._fewest.forget()

    def _begin(self, longest: float, digits: int) -> None:
        """Forget results of stages, and examine stages up to `longest` seconds."""
        self.stages.set_longest(longest, digits=digits)
        self.open = None
        self.closed = False
        if self.counted:
            self.stages.prepare((step.place for step in self.steps), self.workers)
            return
        cluster = self.problem.cluster
        self._fewest = FewestBehind(
            self.stages, devices=cluster.device_count, per_node=cluster.devices_per_node,
            max_stages=self.problem.max_stages, workers=self.workers, check=self.check,
        )  # fmt: skip

    def confirm_by_stages(self, bound: float) -> None:
        """Raise the bound to `bound` seconds if the stages' bounds alone prove it."""
        bound = min(bound, self.ceiling)
        self.bound_by_stages(bound)
        slowest = bound / self.micro_batches
        if slowest < self._work and self.weight > 0:
            slowest = (bound - self._work) / self.weight
        slowest *= 1 - CONFIRM_ROUNDING
        if self.bound < bound and not self.pipelines().exists(slowest):
            total = max(self._work, slowest)
            self.raise_bound(self.weight * slowest + total, BOUNDS)

    def confirm_slowest(self, slowest: float) -> None:
        """Accept that some stage takes `slowest` seconds if known stages prove it."""
        if slowest > self._low and not self.pipelines().exists(slowest * (1 - CONFIRM_ROUNDING)):
            self._low = slowest * (1 - CONFIRM_ROUNDING)

    # ---- the open graph -------------------------------------------------------------------------

    def expand(self, cutoff: float) -> OpenStages:
        """Return the graph of stages that may be part of a plan below `cutoff` seconds."""
        scape = self.pipelines()
        cutoff = min(cutoff, self.ceiling)
        self._slowest = scape.slowest_below(self.weight, cutoff)
        self.open = scape.open_graph(self.weight, cutoff, self._low)
        numbers: dict[tuple[object, ...], int] = {}
        self._names, number = [], []
        for place in self.open.places:
            name = self.stages.key(place, 0)
            if name not in numbers:
                numbers[name] = len(self._names)
                self._names.append(name)
            number.append(numbers[name])
        self._number, self._numbers = np.array(number, np.int64), numbers
        codes = self._number[self.open.place] * WIDE + self.open.entry
        order = np.argsort(codes, kind="stable")
        self._sorted = codes[order]
        self._order = order.astype(self.open.entry.dtype)
        return self.open

    def fold(self) -> None:
        """Free the graph, which may have millions of stages."""
        self.open = None
        self._number = self._order = self._sorted = np.zeros(0, np.int64)

    def key(self, arc: int) -> StageKey:
        """Return the key of an arc's stage."""
        assert self.open is not None
        number = int(self._number[self.open.place[arc]])
        return self._names[number]._replace(entry=int(self.open.entry[arc]))

    def arcs_of(self, key: StageKey) -> NDArray[np.int64]:
        """Return the arcs of stages with the same key."""
        number = self._numbers.get(key._replace(entry=0))
        if number is None:
            return self._order[:0]
        code = number * WIDE + key.entry
        begin, end = np.searchsorted(self._sorted, [code, code + 1])
        return self._order[begin:end]

    def is_exact(self, arc: int) -> bool:
        """Tell whether nothing more can be learned about an arc's stage."""
        way = self.stages.exact.get(self.key(arc))
        return way is not None and way.optimum.exact

    def refine(self, path: Sequence[int], seconds: float) -> bool:
        """Learn more about the stages of a path; tell whether there was anything left to learn.

        Stages that were never looked at come first, at little effort; when there are none, inexact
        ones that may raise the path's time most, one for each worker. They get more effort than
        last time, but no more than fits into `seconds`.
        """
        assert self.open is not None
        graph = self.open.graph
        vague = {self.key(a): a for a in path if not self.is_exact(a)}
        fresh = {key: a for key, a in vague.items() if key not in self.stages.exact}
        first = sorted(vague.values(), key=lambda arc: self._doubt(arc, path), reverse=True)
        todo = list(fresh.values()) or first[: self.workers]
        most = int(min(seconds, SECONDS) * EFFORT_PER_SECOND)

        def one(arc: int) -> None:
            known = self.stages.exact.get(self.key(arc))
            effort = 0 if known is None else max(FIRST_EFFORT, EFFORT_GROWTH * known.effort)
            self.stages.refine(
                self.key(arc), int(graph.start[arc]), int(graph.stop[arc]), cutoff=self._slowest,
                effort=min(effort, most), workers=max(1, self.workers // len(todo)),
            )  # fmt: skip

        for begin in range(0, len(todo), self.workers):
            side_by_side(one, todo[begin : begin + self.workers])
        for arc in todo:
            graph.time[self.arcs_of(self.key(arc))] = self.stages.bound(self.key(arc))
        return bool(todo)

    def _doubt(self, arc: int, path: Sequence[int]) -> float:
        """Return the seconds by which an inexact stage may raise a path's time."""
        assert self.open is not None
        times, way = self.open.graph.time, self.way(arc)
        most = way.optimum.time if way is not None else INFINITE
        slower = max(0.0, most - float(times[list(path)].max()))
        return self.weight * slower + most - float(times[arc])

    def way(self, arc: int) -> Way | None:
        """Return the best known configuration of an arc's stage."""
        return self.stages.exact.get(self.key(arc))

    def sizes(self, path: Sequence[int]) -> tuple[int, ...]:
        """Return the devices of the stages along a path."""
        assert self.open is not None
        return tuple(self.open.places[self.open.place[arc]].devices for arc in path)

    def cuts(self, path: Sequence[int]) -> tuple[int, ...]:
        """Return the first operators of the stages along a path, and the number of operators."""
        assert self.open is not None
        return (*(int(self.open.graph.start[arc]) for arc in path), len(self.problem.costs.chain))

    def known_time(self, path: Sequence[int]) -> float:
        """Return the seconds of the best known plan along a path; INFINITE when there is none."""
        ways = [self.way(arc) for arc in path]
        times = [way.optimum.time if way is not None else INFINITE for way in ways]
        if not times or max(times) >= INFINITE:
            return math.inf
        return self.schedule.iteration_time(times)

    def best_known_path(self, cutoff: float) -> tuple[int, ...]:
        """Return the shortest path below `cutoff` seconds of stages with known configurations, or
        ()."""
        assert self.open is not None
        times = np.full(self.open.graph.arcs, INFINITE)
        for key, way in self.stages.exact.items():
            if way.optimum.time < INFINITE:
                times[self.arcs_of(key)] = way.optimum.time
        usable = np.flatnonzero(times < INFINITE)
        path, _ = best_path(self.open.graph.only(usable, times[usable]), cutoff)
        return tuple(int(usable[arc]) for arc in path)

    def plan(self, path: Sequence[int]) -> OperatorPlan:
        """Return the plan along a path of stages with known configurations."""
        assert self.open is not None
        stages, device = [], 0
        for arc in path:
            way = self.way(arc)
            assert way is not None
            place = self.open.places[self.open.place[arc]]
            stages.append(
                OperatorStage(
                    start=int(self.open.graph.start[arc]), stop=int(self.open.graph.stop[arc]),
                    first_device=device, device_count=place.devices,
                    strategies=self.stages.strategies(place.devices, way.optimum),
                )
            )  # fmt: skip
            device += place.devices
        return Plan(
            model=self.problem.model, global_batch=self.problem.global_batch,
            micro_batches=self.micro_batches, stages=tuple(stages),
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        """Return the proof of the bound, for the certificate."""
        return {
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "bound_s": self.bound if self.bound < INFINITE else None,
            "by": self.source,
            **self.proof.record(stages=self.source not in WITHOUT_STAGES),
        }
