"""Pipelines over stages' times: what is left out cannot be part of a plan below the cutoff."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.paths import best_path
from ilp_planner.optimize.bounds.pipeline import Landscape, Step, steps
from ilp_planner.optimize.bounds.pipelines import OpenStages, Place
from ilp_planner.optimize.bounds.rows import share_rows
from ilp_planner.schedule.formulas import OneForwardOneBackward
from tests.examples import examples, for_each
from tests.optimize.bounds.fixed_parts import FIXED, body, fixed_part
from tests.tiny import StageCatalogue, problems, stands

FEW = examples(10)
SAME = 1e-9  # relative
Stages = list[tuple[int, int, int, int, bool, bool]]


def listed_steps(devices: int, per_node: int, groups: tuple[int, ...], most: int) -> set[Step]:
    """List the steps of every sequence of groups that fills the devices."""
    found: set[Step] = set()

    def extend(sizes: tuple[int, ...]) -> None:
        begin = sum(sizes)
        if begin == devices:
            for s, size in enumerate(sizes):
                start = sum(sizes[:s])
                place = Place(
                    size,
                    len(sizes) - 1 - s,
                    start > 0 and start % per_node == 0,
                    (start + size) % per_node == 0,
                )
                found.add(Step(place, devices - start - size))
            return
        for g in groups:
            if begin + g <= devices and stands(begin, g, per_node) and len(sizes) < most:
                extend((*sizes, g))

    extend(())
    return found


@examples(75)
@given(
    st.sampled_from([(1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (3, 2), (2, 4), (3, 1), (1, 6)]),
    st.sets(st.sampled_from([1, 2, 3, 4, 8]), min_size=1),
    st.integers(1, 9),
)
def test_steps_are_those_of_every_legal_sequence_of_groups(
    shape: tuple[int, int], groups: set[int], most: int
) -> None:
    nodes, per_node = shape
    found = steps(
        devices=nodes * per_node, per_node=per_node, groups=tuple(sorted(groups)), max_stages=most
    )
    assert len(set(found)) == len(found)
    assert set(found) == listed_steps(nodes * per_node, per_node, tuple(groups), most)
    behind = [step.place.behind for step in found]
    assert behind == sorted(behind)  # suffixes first


class Listed:
    """One part of a problem with the exact time of every stage, and all of its pipelines."""

    def __init__(self, problem: Problem, micro_batch: int) -> None:
        self.catalogue = StageCatalogue(problem, micro_batch)
        self.part = OperatorPart(problem, micro_batch)
        self.room = problem.memory_limit * (1 + ROUNDING)
        self.count = self.part.micro_batches
        self.known: dict[tuple[object, ...], float] = {}
        self.pipelines: list[tuple[Stages, list[float]]] = []
        for pipeline in self.catalogue.pipelines():
            times = [self.time(*stage) for stage in pipeline]
            if math.isfinite(max(times)):
                self.pipelines.append((pipeline, times))
        self.tables: dict[Place, NDArray[np.float64]] = {}

    def time(self, *stage: object) -> float:
        """Return the least time of a stage, by enumeration."""
        if stage not in self.known:
            time, memory = self.catalogue.priced(*stage)  # type: ignore[arg-type]
            self.known[stage] = float(time[memory <= self.room].min(initial=math.inf))
        return self.known[stage]

    def exact(self, place: Place) -> NDArray[np.float64]:
        """Return the least times at a place, as the tables of bounds keep them."""
        if place not in self.tables:
            n = len(self.catalogue.costs.chain)
            table = np.full(self.part.stages.extents[place.devices].entries, INFINITE)
            for i, j in itertools.combinations(range(n + 1), 2):
                entry = self.part.stages.entry(place.devices, i, j)
                where = (place.behind, place.enters_node, place.leaves_node)
                if entry >= 0:
                    table[entry] = min(INFINITE, self.time(place.devices, i, j, *where))
            self.tables[place] = table
        return self.tables[place]

    @property
    def landscape(self) -> Landscape:
        return self.part.landscape(self.exact)

    def least_slowest(self) -> float:
        return min((max(times) for _, times in self.pipelines), default=math.inf)

    def best(self) -> tuple[float, Stages]:
        """Return the least iteration time and its pipeline."""
        return min(
            (
                (OneForwardOneBackward(self.count).iteration_time(times), stages)
                for stages, times in self.pipelines
            ),
            key=lambda x: x[0],
            default=(math.inf, []),
        )


def arcs(graph: OpenStages) -> set[tuple[int, int, int, int, bool, bool]]:
    """Return the stages of a graph, as the enumeration of pipelines names them."""
    found = set()
    for arc, (start, stop) in enumerate(zip(graph.graph.start, graph.graph.stop, strict=True)):
        at = graph.places[graph.place[arc]]
        found.add((at.devices, int(start), int(stop), at.behind, at.enters_node, at.leaves_node))
    return found


def listed_part(problem: Problem) -> Listed:
    """Return the part of the smallest micro-batches."""
    return Listed(problem, problem.micro_batch_sizes[0])


@st.composite
def listed(draw: st.DrawFn) -> Listed:
    problem = draw(problems(most_ways=1000))
    part = Listed(problem, draw(st.sampled_from(problem.micro_batch_sizes)))
    assume(part.part.steps)
    return part


@FEW
@given(listed())
def test_the_least_slowest_stage_is_bracketed(part: Listed) -> None:
    least = part.least_slowest()
    scape = part.landscape
    low, high = scape.least_slowest(1e-9, 1e3)
    if math.isinf(least):
        assert (low, high) == (1e3, INFINITE)
        return
    assert low <= least * (1 + SAME)
    assert least <= high * (1 + SAME)
    assert high <= low * (1 + 1e-4 + SAME)
    assert scape.exists(least * (1 + SAME))
    assert not scape.exists(least * (1 - SAME))


@FEW
@given(listed(), st.floats(0.5, 3.0))
def test_the_least_sum_is_that_of_enumeration(part: Listed, factor: float) -> None:
    assume(part.pipelines)
    slowest = part.least_slowest() * factor
    assume(all(abs(t / slowest - 1) > SAME for _, times in part.pipelines for t in times))
    sums = [sum(times) for _, times in part.pipelines if max(times) <= slowest]
    expected = min(sums, default=INFINITE)
    assert part.landscape.least_sum(slowest) == pytest.approx(expected, rel=SAME)


@FEW
@given(listed(), st.sampled_from([0.9, 1.0001, 1.5]))
def test_no_pipeline_undercuts_the_least_total(part: Listed, factor: float) -> None:
    best, _ = part.best()
    assume(math.isfinite(best))
    low, weight = part.least_slowest() * (1 - SAME), part.count - 1.0
    total = part.landscape.least_total(weight, best * factor, low, 0.0)
    assert min(total, best * factor) <= best * (1 + SAME)
    assert total >= weight * low * (1 - SAME)


@FEW
@given(listed(), st.floats(1.0, 3.0))
def test_windows_exclude_no_state_of_a_pipeline(part: Listed, factor: float) -> None:
    slowest = part.least_slowest() * factor * (1 + SAME)
    assume(math.isfinite(slowest))
    scape = part.landscape
    windows = scape.windows(scape._reaches(slowest))
    for stages, times in part.pipelines:
        if max(times) > slowest:
            continue
        used = 0
        for devices, start, *_ in reversed(stages):
            used += devices
            assert windows[used, 0] <= start <= windows[used, 1]


@FEW
@given(listed(), st.sampled_from([1.0001, 1.1, 2.0]))
def test_all_stages_of_plans_below_the_cutoff_stay_open(part: Listed, factor: float) -> None:
    best, _ = part.best()
    assume(math.isfinite(best))
    cutoff = best * factor
    scape = part.landscape
    graph = scape.open_graph(part.count - 1.0, cutoff, part.least_slowest() * (1 - SAME))
    assert best_path(graph.graph)[1] == pytest.approx(best, rel=SAME)
    found = arcs(graph)
    slowest = scape.slowest_below(part.count - 1.0, cutoff)
    for stages, times in part.pipelines:
        if OneForwardOneBackward(part.count).iteration_time(times) < cutoff * (1 - SAME):
            assert set(stages) <= found
            assert max(times) <= slowest * (1 + SAME)


@FEW
@given(listed(), st.sampled_from([1.0001, 1.1, 2.0]))
def test_on_bounds_the_stages_of_the_optimum_stay_open(part: Listed, factor: float) -> None:
    best, stages = part.best()
    assume(math.isfinite(best))
    part.part.bound_by_work()
    assert part.part.bound <= best * (1 + SAME)
    part.part.bound_by_stages(best * factor)
    assert part.part.bound <= best * (1 + SAME)
    graph = part.part.expand(best * factor)
    assert set(stages) <= arcs(graph)
    assert best_path(graph.graph)[1] <= best * (1 + SAME)


@FEW
@given(listed(), st.sampled_from([0.9, 1.0001, 1.5]))
def test_coarse_bounds_and_confirmed_ones_hold(part: Listed, factor: float) -> None:
    best, _ = part.best()
    assume(math.isfinite(best))
    part.part.bound_by_work()
    part.part.bound_by_stages(best * factor, coarse=True)
    assert part.part.bound <= best * (1 + SAME)
    again = OperatorPart(part.part.problem, part.part.micro_batch)
    again.bound_by_work()
    again.confirm_by_stages(best * factor)
    assert again.bound <= best * (1 + SAME)


@for_each("name", FIXED)
def test_what_is_said_of_pipelines_is_so_of_fixed_ones(name: str) -> None:
    problem = fixed_part(name)
    part = listed_part(problem)
    assert len(part.pipelines) > (name != "single")
    body(test_the_least_slowest_stage_is_bracketed)(part)
    for factor in (0.5, 1.0001, 1.2, 3.0):
        body(test_the_least_sum_is_that_of_enumeration)(part, factor)
        body(test_windows_exclude_no_state_of_a_pipeline)(part, max(1.0, factor))
        body(test_coarse_bounds_and_confirmed_ones_hold)(listed_part(problem), factor)
    for factor in (1.0001, 1.1, 2.0):
        body(test_no_pipeline_undercuts_the_least_total)(part, factor)
        body(test_all_stages_of_plans_below_the_cutoff_stay_open)(part, factor)
        body(test_on_bounds_the_stages_of_the_optimum_stay_open)(listed_part(problem), factor)


def test_windows_are_as_far_as_longest_stages_reach() -> None:
    """Three operators on three devices, one each; then with two in the first one's stage."""

    def windows(*longest: list[int]) -> list[list[int]]:
        scape = Landscape(
            operators=3, devices=3, max_stages=3, steps=(), rows=share_rows(np.arange(3)),
            extents={}, times=lambda place: np.zeros(0),
        )  # fmt: skip
        places = [Place(1, behind, False, False) for behind in range(len(longest))]
        return scape.windows(dict(zip(places, map(np.array, longest), strict=True))).tolist()

    assert windows([1, 1, 1]) == [[3, 3], [2, 2], [1, 1], [0, 0]]
    assert windows([1, 1, 1], [2, 1, 1]) == [[3, 3], [2, 3], [0, 2], [0, 0]]


@for_each("name", FIXED)
def test_only_stages_of_pipelines_are_open(name: str) -> None:
    """Of those whose stages are all as fast as one below the cutoff has to be."""
    part = listed_part(fixed_part(name))
    scape, weight, cutoff = part.landscape, part.count - 1.0, 3 * part.best()[0]
    slowest = scape.slowest_below(weight, cutoff)
    known = {
        stage
        for stages, times in part.pipelines
        if max(times) <= slowest * (1 + SAME)
        for stage in stages
    }
    assert arcs(scape.open_graph(weight, cutoff, 0.0)) <= known
