"""No stage is faster, or needs less memory, than its bound."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.bounds.arrays import INFINITE
from ilp_planner.bounds.operator_part import OperatorPart
from ilp_planner.bounds.pipeline import Place
from ilp_planner.bounds.rows import share_rows
from ilp_planner.bounds.sweep import extent
from ilp_planner.numerics import ROUNDING
from tests.examples import examples
from tests.tiny import StageCatalogue, problems, with_limit

if TYPE_CHECKING:
    from ilp_planner.problem import Problem

FEW = examples(10)
SAME = 1e-9  # relative


def parts(problem: Problem) -> list[OperatorPart]:
    return [
        part for part in (OperatorPart(problem, m) for m in problem.micro_batch_sizes) if part.steps
    ]


@FEW
@given(problems(most_ways=1000))
def test_no_stage_is_faster_than_its_bound(problem: Problem) -> None:
    n = len(problem.costs.chain)
    room = problem.memory_limit * (1 + ROUNDING)
    for part in parts(problem):
        catalogue = StageCatalogue(problem, part.micro_batch)
        for place in {step.place for step in part.steps}:
            times = part.stages.times(place)
            for i, j in itertools.combinations(range(n + 1), 2):
                time, memory = catalogue.priced(
                    place.devices, i, j, place.behind, place.enters_node, place.leaves_node
                )
                optimum = float(time[memory <= room].min(initial=math.inf))
                entry = part.stages.entry(place.devices, i, j)
                if entry < 0:  # only what cannot run at all is left out without a limit on time
                    assert math.isinf(optimum)
                    continue
                assert times[entry] <= optimum * (1 + SAME)


@FEW
@given(problems(most_ways=1000), st.floats(1.0, 2.0))
def test_more_memory_never_raises_a_bound(problem: Problem, factor: float) -> None:
    more = with_limit(problem, problem.memory_limit * factor)
    for less_part, more_part in zip(parts(problem), parts(more), strict=True):
        for place in {step.place for step in less_part.steps}:
            tight, loose = less_part.stages.times(place), more_part.stages.times(place)
            assert (loose <= tight * (1 + SAME) + 1e-9).all()


@FEW
@given(problems(most_ways=1000))
def test_no_stage_needs_less_memory_than_its_bound(problem: Problem) -> None:
    n = len(problem.costs.chain)
    for part in parts(problem):
        catalogue = StageCatalogue(problem, part.micro_batch)
        for place in {step.place for step in part.steps}:
            in_flight = part.stages.in_flight(place.behind)
            sizes = part.stages.memory(place.devices, in_flight, place.enters_node)
            for i, j in itertools.combinations(range(n + 1), 2):
                time, memory = catalogue.priced(
                    place.devices, i, j, place.behind, place.enters_node, place.leaves_node
                )
                least = float(memory[time < math.inf].min(initial=math.inf))
                entry = part.stages.entry(place.devices, i, j)
                if entry >= 0:
                    assert sizes[int(place.leaves_node), entry] <= least * (1 + SAME)


@FEW
@given(problems(most_ways=1000), st.floats(0, 1))
def test_stages_are_left_out_only_when_their_operators_alone_take_too_long(
    problem: Problem, share: float
) -> None:
    n = len(problem.costs.chain)
    for part in parts(problem):
        for chain in part.stages.chains.values():

            def least(i: int, j: int, chain=chain) -> float:  # type: ignore[no-untyped-def]
                now = chain.operators.compute[i]
                for q in range(i + 1, j):
                    moved = now[:, None] + chain.operators.reshard[chain.tables.pair[q]]
                    now = moved.min(axis=0) + chain.operators.compute[q]
                return float(now.min())

            whole = [least(i, j) for i, j in itertools.combinations(range(n + 1), 2)]
            usable = [time for time in whole if time < INFINITE]
            assume(usable)
            longest = min(usable) + share * (max(usable) - min(usable)) + 1e-9
            size = extent(chain, share_rows(chain.tables.kind), longest)
            for i in range(n):
                fits = [j - i for j in range(i + 1, n + 1) if least(i, j) <= longest]
                assert size.length[i] == max(fits, default=0)


def test_a_place_is_a_value() -> None:
    assert len({Place(1, 0, False, True), Place(1, 0, False, True)}) == 1


@FEW
@given(problems(most_ways=1000))
def test_refining_a_stage_only_raises_its_bound(problem: Problem) -> None:
    for part in parts(problem):
        place = part.steps[0].place
        n = len(problem.costs.chain)
        entry = part.stages.entry(place.devices, 0, n)
        if entry < 0:
            continue
        key = part.stages.key(place, entry)
        before = part.stages.bound(key)
        way = part.stages.refine(key, 0, n, cutoff=INFINITE, effort=10**8)
        assert part.stages.bound(key) >= before
        assert part.stages.bound(key) == pytest.approx(max(before, way.optimum.bound), rel=SAME)
