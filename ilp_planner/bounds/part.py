"""One part of the search: all plans with one micro-batch size, and what has been proved about them so far."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ilp_planner.bounds.paths import best_path
from ilp_planner.bounds.pipeline import Landscape, OpenGraph, Place, steps
from ilp_planner.bounds.stages import StageBounds, StageKey, Way
from ilp_planner.bounds.sweep import INFINITE
from ilp_planner.plan import Plan, Stage, Strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ilp_planner.problem import Problem



# Sources of a bound that rests on no exactly solved stage.
WITHOUT_STAGES = ("device groups", "work", "stage bounds")


class Part:
    """Plans with one micro-batch size.

    bound: seconds; no plan of this part takes less. source: the argument that proved it.
    closed: nothing more can be learned about plans below the last cutoff.
    """

    def __init__(self, problem: Problem, micro_batch: int, workers: int = 1) -> None:
        self.problem = problem
        self.micro_batch = micro_batch
        self.micro_batches = problem.micro_batch_count(micro_batch)
        self.workers = workers
        self.bound = 0.0
        self.source = ""
        self.closed = False
        self.open: OpenGraph | None = None
        self.stages = StageBounds(
            problem.costs, micro_batch=micro_batch, micro_batches=self.micro_batches,
            groups=problem.group_sizes, limit=problem.memory_limit,
        )  # fmt: skip
        cluster = problem.cluster
        self.steps = steps(
            devices=cluster.device_count, per_node=cluster.devices_per_node,
            groups=self.stages.groups, max_stages=problem.max_stages,
        )  # fmt: skip
        self._slowest = INFINITE
        self._arcs_of: dict[StageKey, list[int]] = {}
        self._keys: list[StageKey] = []
        self._low = 0.0

    def landscape(self, times: Callable[[Place], np.ndarray] | None = None) -> Landscape:
        """Return the pipelines over the stages' bounds, or over other numbers for the stages."""
        return Landscape(
            operators=len(self.problem.costs.operators), devices=self.problem.cluster.device_count,
            max_stages=self.problem.max_stages, steps=self.steps, rows=self.stages.rows,
            extents=self.stages.extents, times=times or self.stages.times,
        )  # fmt: skip

    def raise_bound(self, bound: float, source: str) -> None:
        """Keep the better bound."""
        if bound > self.bound:
            self.bound, self.source = bound, source

    def bound_by_work(self) -> None:
        """Bound the part as if memory had no limit."""
        if not self.steps:
            self.raise_bound(INFINITE, "device groups")
            return
        self._bound_landscape(self.landscape(self.stages.without_memory), INFINITE, "work")

    def bound_by_stages(self, cutoff: float) -> None:
        """Bound the part by its stages' bounds; looks only at plans below `cutoff` seconds."""
        self.stages.set_longest(self._longest(cutoff))
        self.open = None
        self.closed = False
        self._bound_landscape(self.landscape(), cutoff, "stage bounds")

    def _longest(self, cutoff: float) -> float:
        return min(cutoff / self.micro_batches, INFINITE)

    def _bound_landscape(self, scape: Landscape, cutoff: float, source: str) -> None:
        """Whatever the slowest stage: it takes at least what a pipeline needs, and all stages their sum."""
        b = self.micro_batches - 1
        total = scape.least_sum(INFINITE / 10)
        if total >= INFINITE:
            self.raise_bound(cutoff, source)
            return
        slowest = min((cutoff - total) / b if b else cutoff, total)
        if slowest <= 0:
            self.raise_bound(min(cutoff, total), source)
            return
        low, high = scape.least_slowest(total / (2 * self.problem.max_stages), slowest)
        if high >= INFINITE:
            self.raise_bound(min(cutoff, b * low + total), source)
            return
        self._low = low
        self.raise_bound(min(cutoff, b * low + total), source)

    # ---- the open graph -------------------------------------------------------------------------

    def expand(self, cutoff: float) -> OpenGraph:
        """Return the graph of stages that may be part of a plan below `cutoff` seconds."""
        scape = self.landscape()
        b = self.micro_batches - 1
        self._slowest = (cutoff - scape.least_sum(INFINITE / 10)) / b if b else cutoff
        self.open = scape.open_graph(self.micro_batches, cutoff, self._low)
        self._keys = [
            self.stages.key(self.open.places[p], e)
            for p, e in zip(self.open.place.tolist(), self.open.entry.tolist(), strict=True)
        ]
        self._arcs_of = {}
        for arc, key in enumerate(self._keys):
            self._arcs_of.setdefault(key, []).append(arc)
        return self.open

    def is_exact(self, arc: int) -> bool:
        """Tell whether nothing more can be learned about an arc's stage."""
        way = self.stages.exact.get(self._keys[arc])
        return way is not None and way.optimum.exact

    def refine(self, path: Sequence[int], label_cap: int) -> int:
        """Solve the stages of a path exactly; return how many were not exact before."""
        assert self.open is not None
        todo = list({self._keys[a]: a for a in path if not self.is_exact(a)}.values())

        graph = self.open.graph

        def one(arc: int) -> None:
            self.stages.refine(
                self._keys[arc], int(graph.start[arc]), int(graph.stop[arc]),
                cutoff=self._slowest, label_cap=label_cap,
            )  # fmt: skip

        if self.workers > 1 and len(todo) > 1:
            with ThreadPoolExecutor(self.workers) as pool:
                list(pool.map(one, todo))
        else:
            for arc in todo:
                one(arc)
        for arc in todo:
            graph.time[self._arcs_of[self._keys[arc]]] = self.stages.bound(self._keys[arc])
        return len(todo)

    def way(self, arc: int) -> Way | None:
        """Return the best known way to run an arc's stage."""
        return self.stages.exact.get(self._keys[arc])

    def known_time(self, path: Sequence[int]) -> float:
        """Return the time of the best known plan along a path, in seconds; INFINITE when there is none."""
        ways = [self.way(arc) for arc in path]
        times = [way.optimum.time if way is not None else INFINITE for way in ways]
        if not times or max(times) >= INFINITE:
            return INFINITE
        return (self.micro_batches - 1) * max(times) + sum(times)

    def best_known_path(self, cutoff: float) -> tuple[int, ...]:
        """Return the cheapest path below `cutoff` seconds over stages with a known way, () without one."""
        assert self.open is not None
        times = np.full(len(self._keys), INFINITE)
        for key, way in self.stages.exact.items():
            if way.optimum.time < INFINITE and key in self._arcs_of:
                times[self._arcs_of[key]] = way.optimum.time
        usable = np.flatnonzero(times < INFINITE)
        path, _ = best_path(self.open.graph.only(usable, times[usable]), cutoff)
        return tuple(int(usable[arc]) for arc in path)

    def plan(self, path: Sequence[int]) -> Plan:
        """Return the plan along a path whose stages all have a known way."""
        assert self.open is not None
        stages, device = [], 0
        for arc in path:
            way = self.way(arc)
            assert way is not None
            place = self.open.places[self.open.place[arc]]
            options = self.stages.chains[place.devices].tables.options
            stages.append(
                Stage(
                    start=int(self.open.graph.start[arc]), stop=int(self.open.graph.stop[arc]),
                    first_device=device, devices=place.devices,
                    strategies=tuple(
                        Strategy(
                            tp=options[o].tp, dp=options[o].dp, split=options[o].split,
                            recompute=bool(flag),
                        )
                        for o, flag in zip(way.optimum.choices, way.optimum.flags, strict=True)
                    ),
                )
            )  # fmt: skip
            device += place.devices
        return Plan(
            model=self.problem.model.name, global_batch=self.problem.global_batch,
            micro_batch=self.micro_batch, stages=tuple(stages),
        )  # fmt: skip

    # ---- what remains when nothing fits ---------------------------------------------------------

    def memory_landscape(self) -> Landscape:
        """Return the pipelines over the bytes (not seconds) that each stage needs at least."""
        self.stages.set_longest(INFINITE)
        tables: dict[tuple[int, int, bool], np.ndarray] = {}

        def sizes(place: Place) -> np.ndarray:
            key = (place.devices, self.stages.in_flight(place.behind), place.enters_node)
            if key not in tables:
                tables[key] = self.stages.memory(*key)
            return tables[key][int(place.leaves_node)]

        return self.landscape(sizes)

    def record(self) -> dict[str, Any]:
        """Return what proves the bound, for the certificate."""
        return {
            "micro_batch": self.micro_batch,
            "micro_batches": self.micro_batches,
            "bound_s": self.bound if self.bound < INFINITE else None,
            "by": self.source,
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
                for key, way in self.stages.exact.items()
            ]
            if self.source not in WITHOUT_STAGES
            else [],
        }
