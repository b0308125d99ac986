"""No stage is faster, or needs less memory, than its bound."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ilp_planner.base.numerics import ROUNDING
from ilp_planner.costs.profiles.table import RowKey
from ilp_planner.inputs.problem import Problem
from ilp_planner.optimize.bounds.arrays import INFINITE
from ilp_planner.optimize.bounds.operator_part import OperatorPart
from ilp_planner.optimize.bounds.pipeline import Place
from ilp_planner.optimize.bounds.rows import share_rows
from ilp_planner.optimize.bounds.sweep import Chain, extent, spread
from tests.examples import examples, for_each
from tests.optimize.bounds.fixed_parts import FIXED, body, fixed_part
from tests.tiny import StageCatalogue, make_row, one_device, problems, with_limit

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


@for_each("name", FIXED)
def test_what_is_said_of_stages_is_so_of_fixed_ones(name: str) -> None:
    problem = fixed_part(name)
    body(test_no_stage_is_faster_than_its_bound)(problem)
    body(test_more_memory_never_raises_a_bound)(problem, 1.5)
    body(test_no_stage_needs_less_memory_than_its_bound)(problem)
    for share in (0.0, 0.4, 1.0):
        body(test_stages_are_left_out_only_when_their_operators_alone_take_too_long)(problem, share)
    body(test_refining_a_stage_only_raises_its_bound)(problem)


@for_each("name", FIXED)
def test_without_a_limit_the_bound_is_the_time_of_the_fastest_way(name: str) -> None:
    """With the least that sending costs, whatever the first operator's degree."""
    problem = with_limit(fixed_part(name), 1e15)
    for part in parts(problem):
        catalogue, stages = StageCatalogue(problem, part.micro_batch), part.stages
        for place in {step.place for step in part.steps}:
            tables, cross = catalogue.tables[place.devices], int(place.leaves_node)
            times = stages.times(place)
            for i, j in itertools.combinations(range(len(tables.kind) + 1), 2):
                where = (place.behind, place.enters_node, place.leaves_node)
                time, _ = catalogue.priced(place.devices, i, j, *where)
                ways, _ = catalogue.ways(place.devices, j - i)
                leave = tables.leave[cross, tables.kind[j - 1], ways[:, -1]]
                sent = leave[np.arange(len(ways)), tables.degree[ways[:, 0]]]
                least = float((time - sent + leave.min(axis=1)).min())
                entry = stages.entry(place.devices, i, j)
                assert times[entry] == pytest.approx(least, rel=1e-9, abs=1e-12)


@for_each("name", ["nodes", "alike", "branches"])
def test_bytes_are_those_of_the_leanest_way_but_for_what_recomputation_holds(name: str) -> None:
    """Where there is one way to divide operators, all of which are computed again. The last one
    keeps its output, and reserves nothing."""
    problem = fixed_part(name)
    for part in parts(problem):
        for devices, chain in part.stages.chains.items():
            t, in_flight = chain.tables, 3
            assert len(t.options) == 1
            said = part.stages.memory(devices, in_flight, False)
            for i, j in itertools.combinations(range(len(t.kind) + 1), 2):
                kinds = t.kind[i:j]
                dropped = (t.activations[kinds, 0] * t.saves[i:j])[:-1].sum()
                kept = t.input[kinds[0], 0] + t.activations[kinds, 0].sum() - dropped
                weights = t.weights[kinds, 0].sum()
                reserved = t.forward_reserved[kinds[:-1], 0].max(initial=0.0)
                reserved += t.backward_reserved[kinds[:-1], 0].max(initial=0.0)
                if t.weight_floor:
                    reserved = max(reserved, weights)
                least = t.state_factor * weights + in_flight * kept + reserved
                entry = part.stages.entry(devices, i, j)
                assert said[:, entry] == pytest.approx([least] * 2, rel=1e-9)


@for_each("name", FIXED)
def test_stages_are_as_long_as_their_operators_take(name: str) -> None:
    """To the digit: those that take as long as is allowed matter."""
    for part in parts(fixed_part(name)):
        for chain in part.stages.chains.values():
            rows, n = share_rows(chain.tables.kind), len(chain.tables.kind)
            least = np.full((n, n + 1), np.inf)
            for i in range(n):
                now = chain.operators.compute[i]
                least[i, i + 1] = now.min()
                for q in range(i + 1, n):
                    moved = now[:, None] + chain.operators.reshard[chain.tables.pair[q]]
                    now = moved.min(axis=0) + chain.operators.compute[q]
                    least[i, q + 1] = now.min()
            for longest in least[np.isfinite(least)]:
                length = extent(chain, rows, float(longest)).length
                assert length.tolist() == (least <= longest).sum(axis=1).tolist()


def test_times_and_bytes_are_on_binary_grids() -> None:
    """So that sums are the same in any order; what is not allowed takes for ever."""
    (part,) = parts(fixed_part("ways"))
    for chain in part.stages.chains.values():
        operators, allowed = chain.operators, chain.tables.allowed[chain.tables.kind]
        runs = operators.compute < INFINITE
        assert not (runs & ~allowed).any()
        for seconds in (operators.compute[runs], operators.recompute, operators.reshard):
            assert (seconds * 2.0**48 == np.round(seconds * 2.0**48)).all()
        for size in (operators.activations, operators.weights, chain.input):
            assert (size * 2.0**12 == np.round(size * 2.0**12)).all()


def one_kind(**rows: dict[str, float]) -> Chain:
    """Return a chain of one kind of operators twice on one device, with a split of each row."""
    names = ["a-conv1", "a-conv1"]
    table = {
        RowKey(operator=names[0], micro_batch=1, tp=1, split=split): make_row(**row)
        for split, row in enumerate(rows.values())
    }
    return spread(one_device(names, table))


def test_of_equal_ways_one_stays_and_worse_ones_go() -> None:
    same = {"forward": 1e-3, "activations": 2.0}
    chain = one_kind(first=same, second=same, worse={"forward": 2e-3, "activations": 2.0})
    runs = chain.operators.compute < INFINITE
    assert runs.sum(axis=1).tolist() == [1, 1]
    assert not runs[:, 2].any()
    better = one_kind(first=same, lean={"forward": 2e-3, "activations": 1.0})
    assert (better.operators.compute < INFINITE).all()


def test_ways_that_later_operators_cannot_tell_apart_are_alike() -> None:
    """Of two kinds the first one's second way costs more where it is sent to another node."""
    row = {"forward": 1e-3, "activations": 2.0}
    tables = one_kind(first=row, second=row).tables
    two = {
        name: np.repeat(getattr(tables, name), 2, axis=0)
        for name in (
            "allowed", "compute", "recompute", "activations", "weights", "input",
            "forward_reserved", "backward_reserved",
        )
    }  # fmt: skip
    leave = np.repeat(tables.leave, 2, axis=1)
    leave[1, 0, 1] += 1.0
    kind, enter = np.array([0, 1]), np.repeat(tables.enter, 2, axis=1)
    chain = spread(replace(tables, kind=kind, enter=enter, leave=leave, **two))
    assert chain.alike.tolist() == [[0, 1], [0, 0]]
    assert (chain.operators.compute < INFINITE).tolist() == [[True, False], [False, True]]
